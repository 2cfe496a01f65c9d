// Earlier steps of the open model. The server stores their weights, and computes attention and
// predictions on request.
import { request } from "../../shared/api.js";
import { formatMessage } from "../../shared/format.js";
import { Resource } from "../../shared/resource.js";
import { nearestIndex, store } from "../../shared/store.js";
import { toggle } from "../../engine/parts.js";
import { computed } from "../../vendor/preact.js";
import { setMessage } from "../messages.js";
import { NOTHING_OFF, state } from "../state.js";
import { predict } from "./predict.js";

const MAX_CACHED_WEIGHTS = 4e6;
const MIN_CACHED_SNAPSHOTS = 8;
const FRAME_MS = 120; // of the replay
let snapshotCache = new Map(),
  playbackId = 0,
  endFrame = () => {}; // of the playback

/** @type {any} */
let latestFigure = null;
/**
 * What the figures show: a model with the forward pass of the typed sequence, or of the probe.
 * Until the first snapshot of a model, this is the previous one.
 */
export const figure = computed(() => {
  const { displayedSnapshot: snapshot, probeInfo: info, typedPass, modelRef } = state;
  if (snapshot && info && !state.isFresh)
    latestFigure = {
      modelRef,
      info,
      pass: typedPass
        ? { step: snapshot.step, ...typedPass }
        : { axes: info.axes, source: info.source, ...snapshot },
    };
  return latestFigure;
});

export const hasHistory = () => store.weightSteps.value.length > 1;
export function clearSnapshotCache() {
  snapshotCache = new Map();
}

/** Request a step, once. @param {number} step */
export function fetchSnapshot(step) {
  const cache = snapshotCache,
    payload = { owner: store.owner.value, subject: state.modelRef, step };
  if (!cache.has(step)) cache.set(step, request("runs/snapshot", payload));
  cache.get(step).then(
    (reply) => {
      if (reply.error) cache.delete(step);
      else dropOldest(cache, reply.snapshot);
    },
    () => cache.delete(step),
  );
  return cache.get(step);
}

/**
 * @param {Map<number, unknown>} cache
 * @param {{ attention?: Record<string, number[][][]> }} latest
 */
function dropOldest(cache, { attention = {} }) {
  const weights = Object.values(attention).flat(2),
    size = weights.reduce((sum, head) => sum + head.length, 0),
    maxCount = Math.max(MIN_CACHED_SNAPSHOTS, MAX_CACHED_WEIGHTS / size);
  for (const step of cache.keys()) if (cache.size > maxCount) cache.delete(step);
}
const requestedStep = new Resource(fetchSnapshot, (reason) => setMessage("timeline", reason));

/** End the replay, and drop the answer to a request for a step. */
export function leaveSteps() {
  stopPlayback();
  requestedStep.clear();
}

/**
 * Show the recorded step nearest to `step`: curves, attention, samples and prediction together.
 * @param {number} step
 */
export async function showStep(step) {
  if (!hasHistory()) return;
  const { value: steps } = store.weightSteps,
    recordedStep = steps[nearestIndex(steps, step)];
  setViewedStep(recordedStep);
  const reply = await requestedStep.load(recordedStep);
  if (!reply) return;
  const error = formatMessage(reply.error ?? "");
  setMessage("timeline", error, { isError: true });
  if (error) returnToDisplayedStep();
  else {
    state.probeInfo ||= reply.probe_info;
    state.displayedSnapshot = reply.snapshot;
    predict();
  }
}

/** After an error, the figures show the step before. */
function returnToDisplayedStep() {
  const { displayedSnapshot: displayed, latestSnapshot: latest } = state;
  stopPlayback();
  setViewedStep(!displayed || displayed === latest ? null : displayed.step);
}

export function showLatest() {
  leaveSteps();
  setViewedStep(null);
  setMessage("timeline", "");
  state.displayedSnapshot = state.latestSnapshot;
  predict();
}

/** Set this tab's step first: the store notifies followStep, which then has nothing to do. */
function setViewedStep(/** @type {number | null} */ step) {
  // A recording has no weights of its earlier steps, from which nothing can be switched off.
  if (step !== null && state.status === "checkpoint") state.switchedOff = NOTHING_OFF;
  state.viewedStep = step;
  store.step.value = step;
}

/** Show the step that any tab selects. @param {number | null} step null for the latest */
export function followStep(step) {
  if (step === state.viewedStep) return;
  if (step !== null && hasHistory()) {
    stopPlayback();
    showStep(step);
  } else showLatest();
}

/**
 * Switch parts off, or on if all of them are off.
 * @param {import("../../engine/types.js").Component[]} parts
 */
export function toggleParts(parts) {
  state.switchedOff = toggle(state.switchedOff, parts);
  if (state.status === "checkpoint" && state.viewedStep !== null) showLatest();
}

export function stopPlayback() {
  playbackId += 1;
  endFrame();
  store.isPlaying.value = false;
}

function indexOfNextStep() {
  const { viewedStep } = state,
    { value: steps } = store.weightSteps;
  if (viewedStep === null || viewedStep >= steps[steps.length - 1]) return 0;
  return nearestIndex(steps, viewedStep) + 1;
}

/**
 * Play the recorded steps from the displayed one, or from the start.
 * @param {(index: number) => number} [frameMs] the time that a step lasts
 * @param {() => void} [onStep] called after each step is displayed
 * @returns {Promise<boolean>} whether the playback reached the end
 */
export async function startPlayback(frameMs = () => FRAME_MS, onStep = () => {}) {
  const id = ++playbackId,
    steps = () => store.weightSteps.value; // a run that trains has more later
  store.isPlaying.value = true;
  let at = indexOfNextStep();
  while (id === playbackId && at < steps().length) {
    for (const next of steps().slice(at + 1, at + 4)) fetchSnapshot(next).catch(() => {});
    await showStep(steps()[at]);
    if (id !== playbackId) return false;
    onStep();
    // From the display on: a snapshot may arrive late.
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, frameMs(at));
      endFrame = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
    at = nearestIndex(steps(), steps()[at] ?? 0) + 1;
  }
  if (id !== playbackId) return false;
  showLatest();
  return true;
}
