// The open model in the browser. From the first key or switch on, the page computes its answers
// itself. Before, and for models that the engine lacks, the server predicts.
import { includes, measureImportance } from "../../engine/parts.js";
import { LocalModel, unsupported } from "../../shared/local_model.js";
import { store } from "../../shared/store.js";
import { computed } from "../../vendor/preact.js";
import { isDue, NOTHING_OFF, state } from "../state.js";

/** @import { Component } from "../../engine/types.js" */
/** @import { Loaded } from "../../shared/local_model.js" */

const MAX_SCORED_IN_TRAINING = 64; // examples, so that training does not slow down
const IMPORTANCE_SAMPLE = 32; // examples
const MAX_IMPORTANCE_WORK = 1e10; // multiply-adds: some seconds

export const local = new LocalModel();

/** Whether the engine runs the open model. */
export const runsInBrowser = computed(
  () => Boolean(state.probeInfo?.in_browser) && unsupported.value !== state.modelRef,
);
/** Whether there are examples, for the score and for mean outputs. */
export const hasExamples = computed(() => state.lastResponse.right !== "use");

function displayedWeights() {
  const { modelRef: subject, displayedSnapshot, lastResponse, status } = state,
    isCheckpoint = status === "checkpoint", // which has its last weights only
    step = isCheckpoint ? store.latestStep.value : displayedSnapshot.step;
  return { subject, step, series_id: lastResponse.series_id };
}

/**
 * Compute with the displayed weights, or with others of this run that the Worker got just now.
 * @param {(loaded: Loaded) => Promise<any>} compute
 */
export function useWeights(compute) {
  const { weights: loaded } = local.current,
    weights = displayedWeights(),
    canWait = loaded?.subject === weights.subject && state.viewedStep === null;
  return local.use(canWait && !isDue("weights") ? loaded : weights, compute);
}

const isTouched = () => store.input.value !== null || state.switchedOff.length > 0;

/**
 * Return the answer to a text, as `runs/predict` does; null where the server must answer: before
 * the first key or switch, for what is no input of the model, and for a model that does not run.
 * @param {string} text
 */
export async function answerLocally(text) {
  const { switchedOff: off, ablationMethod: method } = state,
    isReady = runsInBrowser.value && (isTouched() || local.has(displayedWeights()));
  if (!isReady) return null;
  const reply = await useWeights(async (loaded) => {
    const { step, description, components: parts } = loaded,
      isKnown = (/** @type {Component} */ part) => includes(parts, part);
    if (!off.every(isKnown)) state.switchedOff = off.filter(isKnown); // of a wrong link
    if (scored !== scoreKey(off, method)) scored = ""; // which ends a count with other parts
    const answer = await local.call("answer", text, off, method);
    if (!answer) return null;
    scoring = followScore(description.examples.length, off, method);
    followImportance(loaded, method);
    const { forward_pass, ...others } = answer;
    return { ...others, off, parts, step, forward_pass: { ...forward_pass, isFromEngine: true } };
  });
  if (!runsInBrowser.value) state.switchedOff = NOTHING_OFF; // the engine lacks this model
  return reply;
}

/**
 * Return how a query of an answer gets its weights; null if the Worker has given a later one.
 * @param {object} options @param {number} number of the picture
 */
export const scoresLocally = (options, number) => local.call("scores", options, number);

/** Wait until the next frame is on screen. @returns {Promise<void>} */
export const afterFrame = () =>
  new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

let scoring = Promise.resolve(); // until the score on display is complete
let scored = ""; // the key of the score on display, or of the next one
const scoreKey = (/** @type {object[]} */ off, /** @type {string} */ method) =>
  JSON.stringify([local.current.key, off, method]);

/**
 * Count the right examples anew after a change of weights or switches.
 * @param {number} nExamples @param {Component[]} off @param {string} method
 */
async function followScore(nExamples, off, method) {
  const { modelRef, status, switchScore } = state,
    key = scoreKey(off, method),
    n = Math.min(nExamples, status === "training" ? MAX_SCORED_IN_TRAINING : nExamples);
  if (!switchScore && !off.length) return; // the user has typed only
  if (switchScore && key === scored) return;
  scored = key;
  await afterFrame(); // with the new output
  await local.count(n, off, method, (right, measured) => {
    if (key !== scored || modelRef !== state.modelRef) return false;
    state.switchScore = { right, measured };
    return true;
  });
}

let ranked = ""; // the key of the importance on display, or of the next one

/**
 * Measure the importance of all parts after a change of weights or of what "off" means, between
 * two scores. While the model trains, it changes too fast.
 * @param {Loaded} loaded @param {string} method
 */
function followImportance({ description, components, nParameters }, method) {
  const { status, modelRef } = state,
    key = scoreKey([], method),
    n = Math.min(IMPORTANCE_SAMPLE, description.examples.length),
    nTokens = description.lengths[1] + description.max_tokens,
    work = nParameters * nTokens * n * components.length,
    canMeasure = n && status !== "training" && work < MAX_IMPORTANCE_WORK;
  if (canMeasure && key === ranked && state.importance) return;
  ranked = canMeasure ? key : "";
  state.importance = canMeasure ? new Map() : null;
  if (!canMeasure) return;
  const isCurrent = () => key === ranked && modelRef === state.modelRef;
  async function countTokens(/** @type {Component[]} */ off) {
    await scoring;
    return (await local.count(n, off, method, isCurrent))?.tokens ?? null;
  }
  measureImportance(components, countTokens, (shares) => (state.importance = shares));
}
