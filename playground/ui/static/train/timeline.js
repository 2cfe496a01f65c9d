// Earlier steps of the open model. The server stores their weights, and computes attention and
// predictions on request.
import { request, requestWithRetry } from "../shared/api.js";
import { nearestIndex } from "../shared/chart_data.js";
import { formatCount, formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { PLAY_LABEL } from "../shared/strings.js";
import { html } from "../vendor/preact.js";
import { axisMaxStep } from "./curves.js";
import { Message, setMessage } from "./messages.js";
import { MAX_OVERLAYS, overlays, toggleOverlay } from "./overlays.js";
import { predict } from "./prediction.js";
import { scheduleRender } from "./rendering.js";
import { runAndOpen } from "./runs.js";
import { state } from "./state.js";

const MAX_CACHED_SNAPSHOTS = 400;
const FRAME_MS = 120; // of the replay
const KEY_MOVES = /** @type {Record<string, number>} */ ({
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
});
const BRANCH_STATUSES = ["paused", "done", "stopped", "failed"];
let snapshotCache = new Map(),
  playbackId = 0,
  endFrame = () => {}, // of the playback
  stepRequestId = 0;

export const hasHistory = () => state.weightSteps.length > 1;
const lastRecordedStep = () => state.weightSteps[state.weightSteps.length - 1];
export function clearSnapshotCache() {
  snapshotCache = new Map();
}

/** @param {number} step @param {() => boolean} [isCurrent] */
async function fetchSnapshot(step, isCurrent = () => false) {
  if (snapshotCache.has(step)) return snapshotCache.get(step);
  const cache = snapshotCache,
    reply = await requestWithRetry(
      () => request("runs/snapshot", { owner: state.owner, subject: state.modelRef, step }),
      isCurrent,
      (error) => setMessage("timeline", error),
    );
  if (reply.error) throw new Error(reply.error);
  state.probeInfo ||= reply.probe_info;
  cache.set(step, reply.snapshot);
  if (cache.size > MAX_CACHED_SNAPSHOTS) cache.delete(cache.keys().next().value);
  return reply.snapshot;
}

/**
 * Show the recorded step nearest to `step`: curves, attention, samples and prediction together.
 * @param {number} step
 */
export async function showStep(step) {
  if (!hasHistory()) return;
  const recordedStep = state.weightSteps[nearestIndex(state.weightSteps, step)],
    requestId = ++stepRequestId,
    generationId = state.modelGeneration,
    isCurrent = () => requestId === stepRequestId && generationId === state.modelGeneration;
  setViewedStep(recordedStep);
  scheduleRender();
  try {
    const snapshot = await fetchSnapshot(recordedStep, isCurrent);
    if (!isCurrent()) return;
    setMessage("timeline", "");
    state.displayedSnapshot = snapshot;
    scheduleRender();
    predict();
  } catch (error) {
    if (requestId !== stepRequestId) return;
    setMessage("timeline", /** @type {Error} */ (error).message, { isError: true });
    stopPlayback();
  }
}

function showLatest() {
  stopPlayback();
  stepRequestId += 1;
  setViewedStep(null);
  setMessage("timeline", "");
  state.displayedSnapshot = state.latestSnapshot;
  scheduleRender();
  predict();
}

/** Set this tab's step first: the store notifies followStep, which then has nothing to do. */
function setViewedStep(/** @type {number | null} */ step) {
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

export function stopPlayback() {
  playbackId += 1;
  endFrame();
  store.isPlaying.value = false;
}

function indexOfNextStep() {
  const { viewedStep, weightSteps } = state;
  if (viewedStep === null || viewedStep >= lastRecordedStep()) return 0;
  return nearestIndex(weightSteps, viewedStep) + 1;
}

/**
 * Play the recorded steps from the displayed one, or from the start.
 * @param {(index: number) => number} [frameMs] the time that a step lasts
 * @param {() => void} [onStep] called after each step is displayed
 * @returns {Promise<boolean>} whether the playback reached the end
 */
export async function startPlayback(frameMs = () => FRAME_MS, onStep = () => {}) {
  const id = ++playbackId,
    generationId = state.modelGeneration,
    isCurrent = () => id === playbackId && generationId === state.modelGeneration;
  store.isPlaying.value = true;
  let at = indexOfNextStep();
  while (isCurrent() && at < state.weightSteps.length) {
    for (const next of state.weightSteps.slice(at + 1, at + 4)) fetchSnapshot(next).catch(() => {});
    await showStep(state.weightSteps[at]);
    if (id !== playbackId) return false;
    onStep();
    // From the display on: a snapshot may arrive late.
    await new Promise((resolve) => {
      endFrame = () => resolve(undefined);
      setTimeout(resolve, frameMs(at));
    });
    at = nearestIndex(state.weightSteps, state.weightSteps[at] ?? 0) + 1;
  }
  if (id !== playbackId) return false;
  showLatest();
  return true;
}

/** @param {any} event */
function onSlide({ currentTarget: { value } }) {
  stopPlayback();
  if (Number(value) >= lastRecordedStep()) showLatest();
  else showStep(Number(value));
}

/** @param {KeyboardEvent} event */
function onKeyDown(event) {
  const move = KEY_MOVES[event.key],
    { viewedStep, weightSteps } = state;
  if (!move || !hasHistory()) return;
  event.preventDefault();
  stopPlayback();
  const from = viewedStep === null ? weightSteps.length - 1 : nearestIndex(weightSteps, viewedStep);
  if (from + move >= weightSteps.length) showLatest();
  else showStep(weightSteps[Math.max(0, from + move)]);
}

/** Start a run from the displayed step, and draw the curves of this one over its own. */
async function branch() {
  const from = state.modelRef,
    step = state.viewedStep ?? state.lastResponse.step,
    reply = await runAndOpen({ action: "branch", step });
  if (reply.subject && overlays.value.size < MAX_OVERLAYS) toggleOverlay(from, true);
}

function describePosition() {
  if (state.viewedStep !== null) return `Viewing step ${formatInteger(state.viewedStep)}`;
  if (hasHistory()) return formatCount(state.weightSteps.length, "snapshot") + " to replay";
  return state.status === "checkpoint" ? "No history for this checkpoint" : "";
}

export function Timeline() {
  const { lastResponse, viewedStep } = state,
    isPlaying = store.isPlaying.value,
    isOff = !hasHistory(),
    step = viewedStep ?? lastResponse.step ?? 0,
    canBranch =
      lastResponse.is_owner &&
      state.pointCount &&
      (viewedStep !== null || BRANCH_STATUSES.includes(state.status));
  return html`<div class=${isOff ? "rewind off" : "rewind"} data-part="curves">
    <button
      type="button"
      class="play"
      aria-label=${isPlaying ? "Pause the replay" : PLAY_LABEL}
      title="Play the run from its start, or from here"
      disabled=${isOff}
      onClick=${() => (isPlaying ? stopPlayback() : startPlayback())}
    >
      ${isPlaying ? "❚❚" : "▶"}
    </button>
    <input
      type="range"
      class="scrub"
      min="0"
      max=${axisMaxStep()}
      value=${step}
      step="1"
      aria-label="Shown step"
      aria-valuetext=${"step " + step}
      disabled=${isOff}
      onInput=${onSlide}
      onKeyDown=${onKeyDown}
    />
    <span class="viewing">${describePosition()}</span>
    <button type="button" class="pg-button now" hidden=${viewedStep === null} onClick=${showLatest}>
      Go to latest
    </button>
    <button type="button" class="pg-button branch" hidden=${!canBranch} onClick=${branch}>
      ${viewedStep === null ? `Branch from step ${formatInteger(step)}` : "Branch from here"}
    </button>
    <${Message} name="timeline" class="rewind-note" />
  </div>`;
}
