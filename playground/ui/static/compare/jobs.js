// The jobs of the tab. A process of the server that has the pretrained models runs them.
import { ServerError, sleep } from "../shared/api.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { describeError } from "./outage.js";
import { loadLocal, saveLocal } from "./state.js";

const ROUTES = { submit: "jobs/submit", poll: "jobs/poll", cancel: "jobs/cancel" };

/** With `subject`, the server adds the checkpoint of that model to the request. */
const buildPayload = (kind, what, subject) => ({ kind, what, ...(subject ? { subject } : {}) });

/** @type {Set<CompareJob>} */
const jobs = new Set();

/** A job that a page finds again after it was loaded again. */
export class CompareJob extends Job {
  /**
   * @param {string} key
   * @param {{
   *   onStart?: (what: any) => void,
   *   onRows?: (rows: any[], what: any) => void,
   *   onEnd?: (result: any, what: any) => void,
   * }} [callbacks] `onEnd` receives null if there is no result
   */
  constructor(key, { onStart = () => {}, onRows = () => {}, onEnd = () => {} } = {}) {
    super(ROUTES);
    this.key = key;
    this.what = /** @type {any} */ (null);
    this.onStart = onStart;
    this.onEnd = onEnd;
    this.onRows = (rows) => onRows(rows, this.what);
    this.onSubmit = (id, /** @type {any} */ { kind, what, subject = "" }) =>
      saveLocal("job-" + key, { id, request: [kind, what, subject] });
    jobs.add(this);
  }

  /** @param {string} kind @param {object} what @param {string} [subject] */
  async start(kind, what, subject = "") {
    while (!store.owner.value) await sleep(100); // the key of the owner has not arrived yet
    return this.run(store.owner.value, buildPayload(kind, what, subject));
  }

  /** @param {string} owner @param {any} payload */
  async run(owner, payload) {
    this.what = payload.what;
    return super.run(owner, payload);
  }

  /** @param {(number: number) => Promise<any>} work */
  async track(work) {
    const what = this.what;
    this.onStart(what);
    const result = await super.track(work);
    if (what === this.what) this.onEnd(result ?? this.partialResult, what);
    return result;
  }

  /** @param {unknown} error */
  fail(error) {
    super.fail(error);
    this.patch(describeError(this.state.peek().message));
  }

  get isBusy() {
    return isActive(this.state.value);
  }

  /** Whether this browser has submitted such a job before. */
  get isStored() {
    return Boolean(loadLocal("job-" + this.key)?.id);
  }

  async resumeStored() {
    const stored = loadLocal("job-" + this.key);
    if (!stored?.id || !Array.isArray(stored.request)) return;
    const [kind, what, subject] = stored.request;
    this.what = what;
    await this.resume(store.owner.value, stored.id, buildPayload(kind, what, subject));
  }
}

export const resumeJobs = () => jobs.forEach((job) => job.resumeStored());

/**
 * Run a short job without a progress line.
 * @param {string} kind
 * @param {object} what
 * @param {{ subject?: string, onRow?: (row: any) => void }} [options]
 */
export async function runQuery(kind, what, { subject = "", onRow = () => {} } = {}) {
  const job = new Job(ROUTES, { onRows: (rows) => rows.forEach(onRow) }),
    result = await job.run(store.owner.value, buildPayload(kind, what, subject));
  if (!result) throw new ServerError(describeError(job.state.value.message));
  return result;
}
