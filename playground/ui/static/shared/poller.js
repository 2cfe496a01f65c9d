// One poller for the whole page. It polls what visible views subscribe to, sends equal requests
// once, and waits longer after errors. While the page is hidden, it polls only subscriptions with
// an interval for that.

import { request as sendRequest } from "./api.js";
/** @import { Subscription } from "./types.js" */

const MAX_DELAY_MS = 30_000;
const MIN_RETRY_MS = 250;
const JITTER = 0.2; // of the delay, so that many pages do not return to a server at once

export class Poller {
  request = sendRequest;
  isHidden = () => document.hidden;
  now = () => performance.now();
  random = Math.random;
  entries = /** @type {Set<Entry>} */ (new Set());
  timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

  /** @param {Partial<Poller>} [replacements] for tests */
  constructor(replacements = {}) {
    Object.assign(this, replacements);
  }

  /**
   * Poll until the returned `unsubscribe` is called. `wake` polls at once, for example after a
   * command.
   * @param {Subscription} subscription
   */
  subscribe(subscription) {
    const entry = { subscription, dueAt: this.now(), failures: 0, isPending: false };
    this.entries.add(entry);
    this.schedule();
    return {
      wake: () => {
        entry.dueAt = this.now();
        entry.failures = 0;
        this.schedule();
      },
      unsubscribe: () => {
        this.entries.delete(entry);
        this.schedule();
      },
    };
  }

  /** Poll everything at once, for example when the page or the network is back. */
  wakeAll() {
    for (const entry of this.entries) entry.dueAt = this.now();
    this.schedule();
  }

  /** Poll all due subscriptions. Equal requests are sent once. */
  async poll() {
    /** @type {Map<string, { route: string, payload: object, entries: Entry[] }>} */
    const requests = new Map();
    for (const entry of this.entries) {
      if (entry.isPending || this.isPaused(entry) || entry.dueAt > this.now()) continue;
      const { route, payload: buildPayload, isVisible } = entry.subscription;
      const payload = isVisible && !isVisible() ? null : buildPayload();
      if (!payload) {
        entry.dueAt = this.now() + this.delay({ ...entry, failures: 0 });
        continue;
      }
      const key = route + " " + JSON.stringify(payload);
      const group = requests.get(key) ?? { route, payload, entries: [] };
      group.entries.push(entry);
      entry.isPending = true;
      requests.set(key, group);
    }
    this.schedule();
    await Promise.all([...requests.values()].map((group) => this.send(group)));
  }

  /** @param {{ route: string, payload: object, entries: Entry[] }} group */
  async send({ route, payload, entries }) {
    const sentAt = this.now();
    let response, error;
    try {
      response = await this.request(route, payload);
    } catch (cause) {
      error = /** @type {Error} */ (cause);
    }
    for (const entry of entries) {
      entry.isPending = false;
      entry.failures = error ? entry.failures + 1 : 0;
      try {
        if (!this.entries.has(entry)) continue;
        if (error) entry.subscription.onError?.(error);
        else entry.subscription.onData(response);
      } finally {
        // The interval is that of the new state. A command meanwhile has made the entry due again.
        if (entry.dueAt <= sentAt || error) entry.dueAt = this.now() + this.delay(entry);
      }
    }
    this.schedule();
  }

  /** @param {Entry} entry */
  isPaused({ subscription: { hiddenIntervalMs } }) {
    return hiddenIntervalMs === undefined && this.isHidden();
  }

  /** @param {Entry} entry */
  delay({ failures, subscription: { intervalMs, hiddenIntervalMs } }) {
    const visibleMs = typeof intervalMs === "number" ? intervalMs : intervalMs(),
      ms = (this.isHidden() && hiddenIntervalMs) || visibleMs;
    if (!failures) return ms;
    const delay = Math.min(MAX_DELAY_MS, Math.max(MIN_RETRY_MS, ms) * 2 ** failures);
    return delay * (1 - JITTER + 2 * JITTER * this.random());
  }

  /** Set the timer for the next due subscription. */
  schedule() {
    clearTimeout(this.timer);
    const waiting = [...this.entries].filter((entry) => !entry.isPending && !this.isPaused(entry));
    if (!waiting.length) return;
    const next = Math.min(...waiting.map((entry) => entry.dueAt));
    this.timer = setTimeout(() => this.poll(), Math.max(0, next - this.now()));
  }
}

/**
 * @typedef {{ subscription: Subscription, dueAt: number, failures: number, isPending: boolean }}
 *   Entry
 */

export const poller = new Poller();
if (typeof document !== "undefined") {
  document.addEventListener("visibilitychange", () => poller.wakeAll());
  window.addEventListener("online", () => poller.wakeAll());
}
