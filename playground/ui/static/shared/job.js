// A background job of the server: submit, poll, cancel and retry.

import { signal } from "../vendor/preact.js";
import {
  ServerError,
  errorMessage,
  request as sendRequest,
  requestWithRetry,
  sleep,
} from "./api.js";
import { formatMessage } from "./format.js";
/** @import { JobState, JobStatus } from "./types.js" */

const FINAL_STATUSES = ["done", "failed", "cancelled"];
const MIN_POLL_MS = 100;
const MAX_POLL_MS = 500;
const MAX_LOST_POLLS = 40;

/** @type {JobState} */
export const IDLE = Object.freeze({
  status: /** @type {JobStatus} */ ("idle"),
  message: "",
  done: 0,
  total: 0,
  unit: "",
  canRetry: false,
  code: "",
  partial: {},
  result: null,
});

/** @param {string} message @param {any} response */
const toServerError = (message, { retryable, code }) =>
  new ServerError(message, { canRetry: retryable, code });

/** @param {JobState} state */
export const isActive = ({ status }) => status === "waiting" || status === "working";

export class Job {
  /**
   * @param {{ request?: typeof sendRequest, onRows?: (rows: any[]) => void,
   *   onSubmit?: (job: string, payload: object) => void }} [options] `onSubmit` receives the id of
   *   the server, for `resume`
   */
  constructor({ request = sendRequest, onRows = () => {}, onSubmit = () => {} } = {}) {
    this.request = request;
    this.onRows = onRows;
    this.onSubmit = onSubmit;
    this.state = signal(IDLE);
    this.number = 0; // of the submission; responses to earlier ones are ignored
    this.current = /** @type {{ owner: string, job: string } | null} */ (null);
    this.isCancelled = false;
    /** What a job saved although it was cancelled or failed, for example its weights. */
    this.partialResult = /** @type {any} */ (null);
    this.retry = async () => {};
  }

  /**
   * Run a job to its end. A running one is cancelled first. Resolves to the result, or to null
   * after an error, which `state` describes, or if a later job has replaced this one.
   * @param {string} owner @param {object} payload @returns {Promise<any>}
   */
  async run(owner, payload) {
    this.retry = () => this.run(owner, payload);
    return this.track(async (number) => {
      const current = await this.submit(number, owner, payload);
      return current && this.follow(number, current);
    });
  }

  /**
   * Follow a job that an earlier page has submitted; `retry` submits `payload` again. Resolves as
   * `run` does. The state stays idle if the server no longer has the job.
   * @param {string} owner @param {string} job @param {object} payload @returns {Promise<any>}
   */
  async resume(owner, job, payload) {
    this.retry = () => this.run(owner, payload);
    const number = this.number,
      response = await this.request("jobs/poll", { owner, job, cursor: 0 }).catch(() => ({}));
    if (response.error || number !== this.number) return null;
    return this.track((next) => this.follow(next, { owner, job }));
  }

  /** @param {(number: number) => Promise<any>} work */
  async track(work) {
    const number = ++this.number;
    this.isCancelled = false;
    this.partialResult = null;
    this.update({ ...IDLE, status: "working", message: "Starting" });
    await this.cancelCurrent();
    try {
      const result = await work(number);
      if (number !== this.number) return null;
      this.update({ ...IDLE, status: "done", result });
      return result;
    } catch (error) {
      if (number === this.number) this.fail(error);
      return null;
    }
  }

  /** @param {unknown} error */
  fail(error) {
    const isCancelled = this.isCancelled && error instanceof ServerError;
    this.current = null;
    this.update({
      ...IDLE,
      status: isCancelled ? "cancelled" : "failed",
      message: formatMessage(errorMessage(error)),
      result: this.partialResult,
      canRetry: !isCancelled && (!(error instanceof ServerError) || error.canRetry),
      code: error instanceof ServerError ? error.code : "",
    });
  }

  /** @param {number} number @param {string} owner @param {object} payload */
  async submit(number, owner, payload) {
    const isCurrent = () => number === this.number;
    const submitted = await requestWithRetry(
      () => this.request("jobs/submit", { owner, ...payload }),
      isCurrent,
      (reason) =>
        isCurrent() && this.update({ ...this.state.peek(), message: formatMessage(reason) }),
    );
    if (submitted.error) throw toServerError(submitted.error, submitted);
    const current = { owner, job: submitted.job };
    if (isCurrent()) {
      this.onSubmit(submitted.job, payload);
      return current;
    }
    await this.cancelOnServer(current);
    return null;
  }

  /** @param {number} number @param {{ owner: string, job: string }} current */
  async follow(number, current) {
    const isCurrent = () => number === this.number;
    this.current = current;
    let cursor = 0,
      lost = 0;
    for (let waitMs = MIN_POLL_MS; isCurrent(); waitMs = Math.min(MAX_POLL_MS, waitMs * 1.4)) {
      await sleep(waitMs);
      if (!isCurrent()) return null;
      let response;
      try {
        response = await this.request("jobs/poll", { ...current, cursor });
        lost = 0;
      } catch (error) {
        if (++lost > MAX_LOST_POLLS) throw error;
        continue;
      }
      if (!isCurrent()) return null;
      if (response.error) throw toServerError(response.error, response);
      cursor = response.cursor ?? 0;
      if (response.rows?.length) this.onRows(response.rows);
      if (FINAL_STATUSES.includes(response.status)) return this.finish(response);
      this.update({ ...IDLE, ...describeProgress(response) });
    }
    return null;
  }

  /** @param {any} response */
  finish(response) {
    this.current = null;
    if (response.status === "done") return response.result;
    this.isCancelled ||= response.status === "cancelled";
    this.partialResult = response.result ?? null;
    throw toServerError(response.message, response);
  }

  /** Cancel the job on the server; its next poll reports the end. */
  async cancel() {
    this.isCancelled = true;
    await this.cancelCurrent();
  }

  /** Forget the job and its message. */
  reset() {
    this.number++;
    this.cancelCurrent();
    this.update(IDLE);
  }

  async cancelCurrent() {
    const current = this.current;
    this.current = null;
    if (current) await this.cancelOnServer(current);
  }

  /** @param {{ owner: string, job: string }} job */
  async cancelOnServer(job) {
    await this.request("jobs/cancel", job).catch(() => {}); // it ends anyway
  }

  /** @param {JobState} state */
  update(state) {
    this.state.value = state;
  }
}

/** @param {any} response */
function describeProgress(response) {
  const isWaiting = response.status === "waiting";
  const ahead = response.queue_position;
  return {
    status: /** @type {JobStatus} */ (isWaiting ? "waiting" : "working"),
    message: isWaiting
      ? "Queued" + (ahead ? `: ${ahead} ahead` : "")
      : response.message || "Starting",
    done: response.done ?? 0,
    total: response.total ?? 0,
    unit: response.unit ?? "",
    partial: response.partial ?? {},
  };
}
