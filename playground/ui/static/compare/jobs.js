// The jobs of the tab. A process of the server that has the pretrained models runs them.
import { Button } from "../shared/components/buttons.js";
import { html, signal } from "../vendor/preact.js";
import { sleep } from "../shared/api.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { loadLocal, saveLocal } from "./state.js";

/** With `subject`, the server adds the checkpoint of that model to the request. */
const buildPayload = (kind, request, subject) => ({
  kind,
  request,
  ...(subject ? { subject } : {}),
});

const jobs = /** @type {Set<CompareJob>} */ (new Set());

/** A job that a page finds again after it was loaded again. */
export class CompareJob extends Job {
  /**
   * @param {string} key
   * @param {{ onStart?: (request: any) => void, onRows?: (rows: any[], request: any) => void,
   *   onEnd?: (result: any, request: any) => void }} [options] `onEnd` receives null if there is no
   *   result
   */
  constructor(key, { onStart = () => {}, onRows = () => {}, onEnd = () => {} } = {}) {
    super();
    this.key = key;
    this.activeRequest = /** @type {any} */ (null);
    this.onStart = onStart;
    this.onEnd = onEnd;
    this.onRows = (rows) => onRows(rows, this.activeRequest);
    this.onSubmit = (id, payload) => saveLocal("job-" + key, { id, payload });
    jobs.add(this);
  }

  /** @param {string} kind @param {object} request @param {string} [subject] */
  async start(kind, request, subject = "") {
    while (!store.owner.value) await sleep(100); // the key of the owner has not arrived yet
    return this.run(store.owner.value, buildPayload(kind, request, subject));
  }

  /** @param {string} owner @param {any} payload */
  async run(owner, payload) {
    this.activeRequest = payload.request;
    return super.run(owner, payload);
  }

  /** @param {(number: number) => Promise<any>} work */
  async track(work) {
    const request = this.activeRequest;
    this.onStart(request);
    const result = await super.track(work);
    if (request === this.activeRequest) this.onEnd(result ?? this.partialResult, request);
    return result;
  }

  /** @param {unknown} error */
  fail(error) {
    super.fail(error);
    const { message, code, canRetry } = this.state.peek();
    reportOutage(code);
    this.update({
      ...this.state.peek(),
      message: describeError(message, code, this.activeRequest?.model),
      canRetry: canRetry && !isOutage(code), // it would fail again
    });
  }

  get isBusy() {
    return isActive(this.state.value);
  }

  /** Whether this browser has submitted such a job before. */
  get isStored() {
    return Boolean(loadLocal("job-" + this.key)?.id);
  }

  async resumeStored() {
    const { id, payload } = loadLocal("job-" + this.key) ?? {};
    if (!id || !payload?.request) return;
    this.activeRequest = payload.request;
    await this.resume(store.owner.value, id, payload);
  }
}

export const resumeJobs = () => jobs.forEach((job) => job.resumeStored());

/**
 * Run a short job without a progress line. Returns its result, or an `error`.
 * @param {string} kind @param {any} request @param {string} [subject] @returns {Promise<any>}
 */
export async function runQuery(kind, request, subject) {
  const job = new Job(),
    result = await job.run(store.owner.value, buildPayload(kind, request, subject));
  const { message, code } = job.state.value;
  reportOutage(code);
  return result ?? { error: describeError(message, code, request.model) };
}

// Whether the Hub can be reached. The tab shows an outage once, above the views.

// The sentences for the codes of errors (playground/hub/errors.py): above the views, and in an
// error about a model.
const OUTAGES = /** @type {Record<string, { summary: string, problem: string }>} */ ({
  hub_unreachable: {
    summary: "No internet connection. Local models still work.",
    problem: "There is no connection to the Hub",
  },
  hub_unavailable: {
    summary: "The Hub does not respond. Local models still work.",
    problem: "The Hub does not respond",
  },
});

/** The sentence about the outage; empty without one. */
export const outage = signal("");
/** Whether folders of the server are accepted as models. The server checks it. */
export const localPathsAllowed = signal(true);

export const isOutage = (code = "") => Object.hasOwn(OUTAGES, code);

/**
 * Return the message of an error. One of the connection names the model, and what to do.
 * @param {string} message @param {string} [code] @param {string} [model]
 */
export function describeError(message, code = "", model = "") {
  if (!isOutage(code)) return message;
  const other = localPathsAllowed.value
    ? "enter the path of a folder with a model"
    : "choose a model on this machine";
  return (
    `${OUTAGES[code].problem}, and ${model || "the model"} is not on this machine. Try again ` +
    `later, or ${other}.`
  );
}

/** Show an error of the connection above the views. */
export function reportOutage(code = "") {
  if (isOutage(code)) outage.value = OUTAGES[code].summary;
}

/** @param {{ onRetry: () => void }} props */
export const Outage = ({ onRetry }) =>
  html`<p class=${"outage" + (outage.value ? " pg-note" : "")} role="status">
    ${outage.value} ${" "} ${outage.value && html`<${Button} onClick=${onRetry}>Retry<//>`}
  </p>`;
