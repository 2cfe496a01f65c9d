// Timeline of earlier steps.
// The server stores the weights of earlier steps and computes attention and predictions on request.
import { request, requestWithRetry, sleep } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { store } from "../shared/store.js";
import { formatCount } from "../shared/format.js";
import { nearestIndex } from "../shared/chart_data.js";
import { PLAY_LABEL } from "../shared/strings.js";
import { axisMaxStep, MAX_OVERLAYS } from "./curves.js";
import { openModel } from "./model_selection.js";
import { toggleOverlay } from "./overlays.js";
import { predict } from "./prediction.js";
import { scheduleRender } from "./rendering.js";
import { loadRuns, runAction } from "./runs.js";
import { renderSamples } from "./samples.js";
import { state } from "./state.js";
import { overlays } from "./status.js";
import { $ } from "./view.js";

let snapshotCache = new Map(),
  playbackId = 0,
  stepRequestId = 0;
const MAX_CACHED_SNAPSHOTS = 400; // snapshots cached in the page

export const hasHistory = () => state.weightSteps.length > 1;
export function clearSnapshotCache() {
  snapshotCache = new Map();
}

async function fetchSnapshot(step, isCurrent = () => false) {
  if (snapshotCache.has(step)) return snapshotCache.get(step);
  const cache = snapshotCache,
    reply = await requestWithRetry(
      () => request("runs/snapshot", { owner: state.owner, subject: state.modelRef, step }),
      isCurrent,
      (error) => setMessage($(".rewind-note"), error),
    );
  if (reply.error) throw new Error(reply.error);
  state.probeInfo = state.probeInfo || reply.probe_info;
  cache.set(step, reply.snapshot);
  if (cache.size > MAX_CACHED_SNAPSHOTS) cache.delete(cache.keys().next().value);
  return reply.snapshot;
}

// Show the recorded step nearest to `step`: curves, attention, samples and prediction together.
export async function showStep(step) {
  if (!hasHistory()) return;
  const recordedStep = state.weightSteps[nearestIndex(state.weightSteps, step)],
    requestId = ++stepRequestId,
    generationId = state.pollGeneration;
  setViewedStep(recordedStep);
  scheduleRender();
  try {
    const requestedSnapshot = await fetchSnapshot(
      recordedStep,
      () => requestId === stepRequestId && generationId === state.pollGeneration,
    );
    if (requestId !== stepRequestId || generationId !== state.pollGeneration) return;
    setMessage($(".rewind-note"), "");
    state.displayedSnapshot = requestedSnapshot;
    renderSamples();
    scheduleRender();
    predict();
  } catch (error) {
    if (requestId === stepRequestId) {
      setMessage($(".rewind-note"), error.message, "error");
      stopPlayback();
    }
  }
}

function showLatest() {
  stopPlayback();
  stepRequestId += 1;
  setViewedStep(null);
  state.displayedSnapshot = state.latestSnapshot;
  renderSamples();
  scheduleRender();
  predict();
}

// This tab's step first: the store notifies followStep, which then has nothing to do.
function setViewedStep(step) {
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
  const button = $(".play");
  button.textContent = "▶";
  button.setAttribute("aria-label", PLAY_LABEL);
  delete button.dataset.playing;
}

/**
 * Play the recorded steps from the displayed one, or from the start.
 * @param {(index: number) => number} frameMs minimum time of a step
 * @param {() => void} onStep called after each step is displayed
 * @returns {Promise<boolean>} whether the playback reached the end
 */
export async function startPlayback(frameMs = () => 120, onStep = () => {}) {
  const id = ++playbackId,
    button = $(".play"),
    generationId = state.pollGeneration;
  button.textContent = "❚❚";
  button.setAttribute("aria-label", "Pause the replay");
  button.dataset.playing = "yes";
  let at =
    state.viewedStep === null || state.viewedStep >= state.weightSteps[state.weightSteps.length - 1]
      ? 0
      : nearestIndex(state.weightSteps, state.viewedStep) + 1;
  while (
    id === playbackId &&
    generationId === state.pollGeneration &&
    at < state.weightSteps.length
  ) {
    const started = Date.now();
    for (const next of state.weightSteps.slice(at + 1, at + 4)) fetchSnapshot(next).catch(() => {});
    await showStep(state.weightSteps[at]);
    if (id !== playbackId) return false;
    onStep();
    const untilNext = frameMs(at) - (Date.now() - started);
    at = nearestIndex(state.weightSteps, state.weightSteps[at] ?? 0) + 1;
    await sleep(Math.max(0, untilNext));
  }
  if (id !== playbackId) return false;
  showLatest();
  return true;
}

export function renderTimeline() {
  const box = $(".rewind"),
    slider = $(".scrub"),
    maxStep = axisMaxStep(),
    at = state.viewedStep === null ? state.lastResponse.step || 0 : state.viewedStep;
  box.classList.toggle("off", !hasHistory());
  slider.disabled = !hasHistory();
  $(".play").disabled = !hasHistory();
  slider.max = maxStep;
  if (document.activeElement !== slider || state.viewedStep !== null || !slider.matches(":active"))
    slider.value = at;
  slider.setAttribute("aria-valuetext", "step " + at);
  $(".viewing").textContent =
    state.viewedStep === null
      ? hasHistory()
        ? formatCount(state.weightSteps.length, "snapshot") + " to replay"
        : state.status === "checkpoint"
          ? "No history for this checkpoint"
          : ""
      : "Viewing step " +
        state.viewedStep.toLocaleString("en") +
        " of " +
        (state.lastResponse.step || 0).toLocaleString("en");
  $(".now").hidden = state.viewedStep === null;
  $(".branch").hidden =
    !state.lastResponse.is_owner ||
    !state.pointCount ||
    (state.viewedStep === null && !["paused", "done", "stopped", "failed"].includes(state.status));
  $(".branch").textContent = "Branch from step " + at.toLocaleString("en");
  if (state.viewedStep === null) setMessage($(".rewind-note"), "");
}

export function initTimeline() {
  $(".scrub").addEventListener("input", (event) => {
    stopPlayback();
    +event.target.value >= state.weightSteps[state.weightSteps.length - 1]
      ? showLatest()
      : showStep(+event.target.value);
  });
  $(".scrub").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by || !hasHistory()) return;
    event.preventDefault();
    stopPlayback();
    const at =
      (state.viewedStep === null
        ? state.weightSteps.length - 1
        : nearestIndex(state.weightSteps, state.viewedStep)) + by;
    if (at >= state.weightSteps.length) showLatest();
    else showStep(state.weightSteps[Math.max(0, at)]);
  });
  $(".play").addEventListener("click", () =>
    $(".play").dataset.playing ? stopPlayback() : startPlayback(),
  );
  $(".now").addEventListener("click", showLatest);
  $(".branch").addEventListener("click", async () => {
    const reply = await runAction({
      action: "branch",
      step: state.viewedStep === null ? state.lastResponse.step : state.viewedStep,
    });
    if (reply.subject) {
      const from = state.modelRef;
      await loadRuns();
      openModel(reply.subject);
      if (overlays.size < MAX_OVERLAYS) toggleOverlay(from, true);
    }
  });
}
