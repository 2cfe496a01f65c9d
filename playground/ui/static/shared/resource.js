import { batch, signal } from "../vendor/preact.js";
import { NO_RESPONSE, requestWithRetry, sleep } from "./api.js";
import { formatMessage } from "./format.js";

const LOST = { error: NO_RESPONSE, retryable: true };

// The answer to the latest of several requests. Answers to earlier ones are dropped, and a request
// without an answer is sent again.
export class Resource {
  /**
   * @param {(...args: any[]) => Promise<any>} send returns a response, or one with an `error`
   * @param {(reason: string) => void} [onDelay] receives why a request is sent again
   */
  constructor(send, onDelay = (reason) => (this.error.value = formatMessage(reason))) {
    this.send = send;
    this.onDelay = onDelay;
    /** The latest response without an error; it stays beside a later error. */
    this.data = signal(/** @type {any} */ (null));
    this.error = signal("");
    this.isPending = signal(false);
    this.number = 0; // of the request
  }

  /** Return the response, or null after a later request. @param {any[]} args of `send` */
  async load(...args) {
    const number = ++this.number,
      isCurrent = () => number === this.number;
    this.isPending.value = true;
    const response = await requestWithRetry(
      () => this.send(...args).catch(() => LOST),
      isCurrent,
      this.onDelay,
    );
    if (!isCurrent()) return null;
    batch(() => {
      this.isPending.value = false;
      this.error.value = formatMessage(response.error ?? "");
      if (!response.error) this.data.value = response;
    });
    return response;
  }

  /** After a pause without another one. @param {number} delayMs @param {any[]} args of `send` */
  async loadAfter(delayMs, ...args) {
    const number = ++this.number;
    await sleep(delayMs);
    return number === this.number ? this.load(...args) : null;
  }

  /** Forget the data, and drop the answer to a pending request. */
  clear() {
    this.number += 1;
    batch(() => {
      this.isPending.value = false;
      this.error.value = "";
      this.data.value = null;
    });
  }
}
