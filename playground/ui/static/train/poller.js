import { request } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { RETRYING } from "../shared/strings.js";
import { store } from "../shared/store.js";
import { renderControls } from "./controls.js";
import { predict } from "./prediction.js";
import { playFirstVisit } from "./first_visit.js";
import { scheduleRender } from "./rendering.js";
import { refreshRuns } from "./runs.js";
import { renderLengths, renderSamples } from "./samples.js";
import { applyLinkState } from "./share_dialog.js";
import { state } from "./state.js";
import { ACTIVE_STATUSES, formatStatus, TERMINAL_STATUSES } from "./status.js";
import { clearSnapshotCache, followStep, stopPlayback } from "./timeline.js";
import { $, gradio, root } from "./view.js";

let seriesId, snapshotVersion;

// Poll at a high rate for 1.5 s after a command, so that its effect appears at once.
let fastPollUntil = 0,
  wakePoller = () => {};
export const pollNow = () => {
  fastPollUntil = Date.now() + 1500;
  wakePoller();
};

export function renderStatus() {
  root.dataset.status = state.status;
  root.dataset.own = state.lastResponse.is_owner ? "yes" : "no";
  $(".status-text").textContent = formatStatus();
  renderProgress();
  renderControls();
  announceStatus();
  const page = document.querySelector("#train-page");
  if (!page) return;
  const focused = document.activeElement,
    visibleStatus =
      state.lastResponse.is_owner || !ACTIVE_STATUSES.includes(state.status)
        ? state.status
        : "watched";
  page.dataset.status = visibleStatus;
  // Gradio mounts the form's buttons separately; until then the status class hides the wrong ones.
  for (const [id, when] of [
    ["step", ["paused"]],
    ["stop", ["waiting", "paused", "training", "stopping"]],
  ]) {
    const button = page.querySelector("#" + id);
    if (button) button.disabled = !when.includes(visibleStatus);
  }
  const primary = [...page.querySelectorAll("#train, #pause, #resume")];
  if (primary.includes(focused) && !focused.offsetParent)
    primary.find((button) => button.offsetParent)?.focus();
}

function renderProgress() {
  const { step = 0, max_steps: maxSteps } = state.lastResponse,
    bar = $(".progress i");
  bar.style.width = maxSteps ? Math.min(100, (100 * step) / maxSteps) + "%" : "0";
}

// Screen readers announce the status of the run, but not its changing numbers.
let announcedStatus = "";
function announceStatus() {
  const news = [state.modelRef, state.status, state.lastResponse.message || ""].join("/");
  if (news === announcedStatus) return;
  announcedStatus = news;
  $(".announced").textContent = formatStatus();
}

export async function pollRun(generationId) {
  let wait = 0,
    pollsWithoutSnapshot = 0; // polls of an ended run without a snapshot
  while (generationId === state.pollGeneration && root.isConnected) {
    await new Promise((resolve) => {
      wakePoller = resolve;
      setTimeout(resolve, Date.now() < fastPollUntil ? Math.min(wait, 60) : wait);
    });
    try {
      const response = await request("runs/poll", {
        owner: state.owner,
        subject: state.modelRef,
        n_points: state.isFresh ? 0 : state.pointCount,
        series_id: state.isFresh ? -1 : seriesId,
        snapshot_version: state.isFresh ? 0 : snapshotVersion,
        changes: state.isFresh ? -1 : (state.lastResponse.changes_version ?? -1),
      });
      if (generationId !== state.pollGeneration) return;
      applyUpdate(response);
      if (state.status === "checkpoint" || (state.status === "not-found" && !response.retryable))
        return;
      // The owner may resume an ended run, here or in another tab.
      pollsWithoutSnapshot =
        TERMINAL_STATUSES.includes(state.status) && !state.displayedSnapshot
          ? pollsWithoutSnapshot + 1
          : 0;
      wait =
        state.status === "not-found" ||
        (TERMINAL_STATUSES.includes(state.status) &&
          (state.displayedSnapshot || pollsWithoutSnapshot > 30))
          ? 2000
          : document.hidden
            ? 2000
            : ["paused", "waiting"].includes(state.status)
              ? 500
              : state.pointCount
                ? 200
                : 60;
    } catch (error) {
      if (generationId !== state.pollGeneration) return;
      $(".status-text").textContent = RETRYING;
      wait = Math.min(5000, Math.max(500, wait * 2));
    }
  }
}

function applyUpdate(response) {
  const previousStatus = state.isFresh ? "" : state.status,
    previousSnapshot = state.displayedSnapshot;
  if (state.isFresh) resetView();
  if ($(".hand-note").dataset.lost) setMessage($(".hand-note"), "");
  response.changes ??= state.lastResponse.changes; // sent only after a change
  state.lastResponse = response;
  state.status = response.status;
  state.scores = response.scores || null;
  state.weightSteps = response.weight_steps || [];
  if (state.weightSteps.length !== store.weightSteps.value.length)
    store.weightSteps.value = state.weightSteps;
  store.latestStep.value = response.step || 0;
  store.modelName.value = response.name || "";
  const p = response.points;
  if (p.whole || response.series_id !== seriesId) {
    state.metricCurve = { steps: [], loss: [], learning_rate: [], grad_norm: [] };
    state.evaluations = [];
  }
  for (const name of ["steps", "loss", "learning_rate", "grad_norm"])
    for (const value of p[name]) state.metricCurve[name].push(value);
  for (const s of p.evaluations) state.evaluations.push(s);
  // Above 20,000 points, request a downsampled curve to limit memory use.
  state.pointCount = state.metricCurve.steps.length > 20000 ? 0 : p.count;
  if (response.series_id !== seriesId) {
    seriesId = response.series_id;
    clearSnapshotCache();
  }
  if (response.probe_info) {
    state.probeInfo = response.probe_info;
    $(".accepts").textContent = "tokens: " + state.probeInfo.accepts;
    suggestInput(state.probeInfo.question);
  }
  if (response.snapshot) {
    state.latestSnapshot = response.snapshot;
    snapshotVersion = response.snapshot_version;
    if (state.viewedStep === null) {
      state.displayedSnapshot = state.latestSnapshot;
      root.classList.remove("old");
    }
  }
  if (state.viewedStep !== store.step.value) followStep(store.step.value);
  if (state.displayedSnapshot !== previousSnapshot) renderSamples();
  renderLengths();
  renderStatus();
  scheduleRender();
  if (
    state.viewedStep === null &&
    (state.status !== previousStatus ||
      (response.snapshot && (state.status !== "training" || Date.now() - state.predictedAt > 1000)))
  )
    predict();
  if (state.status !== previousStatus) refreshRuns();
  if (state.status === "checkpoint") playFirstVisit();
  else $(".recording-note").hidden = true;
  applyLinkState();
  if (response.awaits_zerogpu && response.is_owner) requestSlice();
}

// A new suggestion replaces an unedited sequence.
function suggestInput(sequence) {
  if (!sequence || sequence === store.suggestedInput.value) return;
  store.suggestedInput.value = sequence;
  if (store.input.value === null && state.viewedStep !== null) predict();
}

// A ZeroGPU slice is granted to the session that requests it, so the page requests one for the
// displayed run through a Gradio event, which identifies the session. Gradio drops requests while
// one is active.
let sliceRequestedAt = 0;
function requestSlice() {
  if (Date.now() - sliceRequestedAt < 2000) return;
  sliceRequestedAt = Date.now();
  gradio.trigger("submit", { owner: state.owner, subject: state.modelRef });
}

// Reset the state for a new model. The previous charts stay visible until its first response
// arrives.
export function resetView() {
  state.isFresh = false;
  state.metricCurve = { steps: [], loss: [], learning_rate: [], grad_norm: [] };
  state.evaluations = [];
  state.pointCount = 0;
  seriesId = -1;
  snapshotVersion = 0;
  state.probeInfo = state.latestSnapshot = state.displayedSnapshot = state.scores = null;
  state.viewedStep = state.hoverStep = state.hoverCell = state.hoverRow = null;
  state.typedPass = null;
  state.weightSteps = [];
  stopPlayback();
  // The charts of the previous model stay, dimmed, so that the layout does not jump.
  root.classList.add("old");
  for (const selector of [".hand-note", ".runs-note", ".saved-note", ".try-note"])
    setMessage($(selector), "");
}
