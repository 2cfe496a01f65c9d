// The open model in the browser. From the first key or switch on, a Worker runs the engine on the
// weights of the displayed step. Before, and for models that the engine lacks, the server predicts.
import { download, request } from "../../shared/api.js";
import { store } from "../../shared/store.js";
import { computed } from "../../vendor/preact.js";
import { NOTHING_OFF, state } from "../state.js";

const WEIGHTS_MS = 1000; // between two downloads of weights while the model trains
const MAX_SCORED_IN_TRAINING = 64; // examples, so that training does not slow down
const SCORE_EVERY = 32; // examples between two changes of the score on display

/** Whether the engine runs the open model. */
export const isLocal = computed(
  () => Boolean(state.probeInfo?.in_browser) && state.unsupported !== state.modelRef,
);
/** Whether there are examples, for the score and for mean outputs. */
export const hasExamples = computed(() => state.lastResponse.right !== "use");

/** @type {Worker | null} */
let worker = null;
let lastId = 0;
/** @type {Map<number, { resolve: (result: any) => void, reject: (error: Error) => void }>} */
const calls = new Map();

/** Call a method of the model in the Worker. @param {string} method @param {any[]} args */
function call(method, ...args) {
  worker ??= startWorker();
  return new Promise((resolve, reject) => {
    calls.set(++lastId, { resolve, reject });
    worker?.postMessage([lastId, method, ...args]);
  });
}

function startWorker() {
  const started = new Worker(new URL("../../engine/worker.js", import.meta.url), {
    type: "module",
  });
  started.onmessage = ({ data: [id, result, problem] }) => {
    const { resolve, reject } = /** @type {any} */ (calls.get(id));
    calls.delete(id);
    if (problem) reject(new RangeError(problem));
    else resolve(result);
  };
  started.onerror = () => {
    for (const { reject } of calls.values()) reject(new RangeError("the Worker does not run"));
    calls.clear();
    worker = null;
  };
  return started;
}

/** The description of a model, once. */
let described = { ref: "", ready: Promise.resolve(/** @type {any} */ (null)) };
/** The weights that the Worker has, or will have. */
let current = {
  key: "",
  ref: "",
  requestedAt: 0,
  ready: Promise.resolve(/** @type {any} */ (null)),
};

function displayedWeights() {
  const { modelRef: ref, displayedSnapshot, lastResponse, status } = state,
    isCheckpoint = status === "checkpoint", // which has its last weights only
    step = isCheckpoint ? store.latestStep.value : displayedSnapshot.step,
    params = { subject: ref, step, series_id: lastResponse.series_id };
  return { ref, params, key: JSON.stringify(params) };
}

/** Load the displayed weights, unless the Worker has them, or got others of this run just now. */
function loadWeights() {
  const { ref, params, key } = displayedWeights(),
    isFollowing = state.status === "training" && state.viewedStep === null,
    isRecent = isFollowing && Date.now() - current.requestedAt < WEIGHTS_MS;
  if (current.key !== key && !(current.ref === ref && isRecent)) {
    current = { key, ref, requestedAt: Date.now(), ready: fetchModel(ref, params, key) };
    const forget = () => {
      if (current.key === key) current = { ...current, key: "", ref: "" };
      described.ref = "";
    };
    current.ready.then(({ error }) => error && forget(), forget);
  }
  return current.ready;
}

/** @param {string} ref @param {Record<string, any>} params @param {string} key of the weights */
async function fetchModel(ref, params, key) {
  const { owner } = state;
  if (described.ref !== ref)
    described = { ref, ready: request("runs/model", { owner, subject: ref }) };
  const [description, weights] = await Promise.all([
      described.ready,
      download("weights", params, { "X-Owner": owner }),
    ]),
    failed = [description, weights].find((each) => each.error);
  if (failed) return failed;
  if (current.key !== key) return current.ready; // newer weights
  await call("load", description, weights.bytes);
  return { step: Number(weights.headers.get("X-Step")), nExamples: description.examples.length };
}

const isTouched = () => store.input.value !== null || state.switchedOff.length > 0;

/**
 * Return the answer to a text, as `runs/predict` does; null where the server must answer: before
 * the first key or switch, for what is no input of the model, and for a model that does not run.
 * @param {string} text
 */
export async function answerLocally(text) {
  const { modelRef, switchedOff: off, ablationMethod: method } = state,
    isReady = isLocal.value && (isTouched() || current.key === displayedWeights().key);
  if (!isReady) return null;
  try {
    const weights = await loadWeights();
    if (weights.error) return weights;
    if (scored !== scoreKey(off, method)) scored = ""; // which ends a count with other parts
    const answer = await call("answer", text, off, method);
    if (!answer) return null;
    followScore(weights.nExamples, off, method);
    const { forward_pass, ...others } = answer;
    return { ...others, off, step: weights.step, forward_pass: { ...forward_pass, isLocal: true } };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // of the network, so it is sent again
    Object.assign(state, { unsupported: modelRef, switchedOff: NOTHING_OFF });
    return null;
  }
}

/** Return how a query of the last answer gets its weights. @param {object} options */
export const scoresLocally = (options) => call("scores", options);

let scored = ""; // the key of the score on display, or of the next one
const scoreKey = (/** @type {object[]} */ off, /** @type {string} */ method) =>
  JSON.stringify([current.key, off, method]);

/**
 * Count the right examples anew after a change of weights or switches.
 * @param {number} nExamples @param {import("../../engine/types.js").Component[]} off
 * @param {string} method
 */
async function followScore(nExamples, off, method) {
  const { modelRef, status, switchScore } = state,
    key = scoreKey(off, method),
    n = Math.min(nExamples, status === "training" ? MAX_SCORED_IN_TRAINING : nExamples);
  if (!switchScore && !off.length) return; // the user has typed only
  if (switchScore && key === scored) return;
  scored = key;
  // after the frame with the new output
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  for (let at = 0, right = 0, displayed = 0; at < n;) {
    const piece = await call("count", at, n, off, method);
    if (key !== scored || modelRef !== state.modelRef) return;
    right += piece.right;
    at = piece.next;
    if (at < n && at - displayed < SCORE_EVERY) continue;
    state.switchScore = { right, measured: at };
    displayed = at;
  }
}
