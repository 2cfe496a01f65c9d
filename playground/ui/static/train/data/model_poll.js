// The open model, which any tab may select, and its poll: status, curves and latest snapshot.
import { formatMessage } from "../../shared/format.js";
import { poller } from "../../shared/poller.js";
import { store } from "../../shared/store.js";
import { RETRYING } from "../../shared/strings.js";
import { batch, effect, untracked } from "../../vendor/preact.js";
import { messages, setMessage } from "../messages.js";
import { isDue, isTabOpen, MODEL_STATE, state, TERMINAL_STATUSES } from "../state.js";
import { overlays, swapOverlay } from "./overlays.js";
import { predict, predictionAnswer, TYPING_MS } from "./predict.js";
import { clearSnapshotCache, followStep, leaveSteps, showLatest } from "./snapshots.js";

const COLUMNS = ["steps", "loss"]; // of the curve
const MAX_POINTS = 20_000; // a downsampled curve replaces a longer one
const FAST_INTERVAL_MS = 60;
const ENDED_INTERVAL_MS = 2000;
const MAX_POLLS_WITHOUT_SNAPSHOT = 30;
const HIDDEN_MS = 1000; // between polls while another tab is open, which needs the steps
const OPENING_MS = 400;
const FAST_MS = 1500;
const SWITCH_MS = 50;

let seriesId = -1,
  snapshotVersion = 0,
  fastPollUntil = 0,
  announcedUntil = 0,
  pollsWithoutSnapshot = 0, // polls of an ended run without a snapshot
  subscription = { wake: () => {}, unsubscribe: () => {} };

/** Poll at a high rate after a command, so that its effect appears at once. */
export function pollNow() {
  fastPollUntil = Date.now() + FAST_MS;
  subscription.wake();
}

/**
 * Show the status that a click will bring. A response with another status than that of the click
 * replaces it, and so does any response after 1.5 s; a run that starts has it until its first one.
 * @param {string} status empty if the click failed
 * @param {string} [text]
 */
export function announce(status, text = "") {
  batch(() => Object.assign(state, { announcedStatus: status, statusNote: text }));
  announcedUntil = status === "starting" ? Infinity : Date.now() + FAST_MS;
}

function intervalMs() {
  const { status } = state,
    hasEnded = TERMINAL_STATUSES.includes(status);
  let ms = state.pointCount ? 200 : FAST_INTERVAL_MS;
  if (["paused", "waiting"].includes(status)) ms = 500;
  // The owner may resume an ended run, here or in another tab.
  const isComplete = state.displayedSnapshot || pollsWithoutSnapshot > MAX_POLLS_WITHOUT_SNAPSHOT;
  if (status === "not-found" || (hasEnded && isComplete)) ms = ENDED_INTERVAL_MS;
  if (!isTabOpen.value) ms = Math.max(ms, HIDDEN_MS);
  return Date.now() < fastPollUntil ? Math.min(ms, FAST_INTERVAL_MS) : ms;
}

/**
 * Open a model in all tabs. The open one is polled again, for example after Undo.
 * @param {string} ref empty for none
 */
export function openModel(ref) {
  if (ref && ref !== state.modelRef) store.openModel(ref);
  else showModel(ref);
}

/** Follow the model, step and sequence that any tab selects. */
export function followSelection() {
  effect(() => {
    const model = store.model.value,
      step = store.step.value;
    untracked(() => {
      if (model && model !== state.modelRef) showModel(model);
      else if (!state.isFresh) followStep(step);
    });
  });
  let lastInput = store.input.peek();
  effect(() => {
    const input = store.input.value;
    untracked(() => {
      // A recording has pictures of its own input only.
      const isOther = input !== lastInput && state.status === "checkpoint";
      lastInput = input;
      if (isOther && store.isPlaying.value) showLatest();
    });
  });
  effect(() => {
    void store.input.value;
    if (!isTabOpen.value) return;
    untracked(() => predict(TYPING_MS));
    subscription.wake();
  });
  effect(() => {
    const off = state.switchedOff;
    void state.ablationMethod;
    untracked(predict);
    // If the output takes longer, the switches change without it.
    setTimeout(() => off === state.switchedOff && (state.displayedOff = off), SWITCH_MS);
  });
}

/** @param {string} ref */
function showModel(ref) {
  const previousRef = state.modelRef;
  if (overlays.value.has(ref) && previousRef.startsWith("run:") && previousRef !== ref)
    swapOverlay(ref, previousRef);
  batch(() => {
    leaveSteps();
    predictionAnswer.clear();
    Object.assign(state, { modelRef: ref, isFresh: true });
    if (!ref) showNoModel();
  });
  if (ref) startPolling();
}

function showNoModel() {
  subscription.unsubscribe();
  resetView();
  Object.assign(state, { lastResponse: {}, status: "empty", hasNoFigures: true });
}

/** Poll the open model, instead of the previous one. */
function startPolling() {
  subscription.unsubscribe();
  const { modelRef } = state,
    newSubscription = poller.subscribe({
      route: "runs/poll",
      payload: buildPayload,
      intervalMs,
      hiddenIntervalMs: ENDED_INTERVAL_MS,
      onData: (response) => {
        batch(() => applyUpdate(response));
        const isLost = state.status === "not-found" && !response.retryable;
        if (state.status === "checkpoint" || isLost) newSubscription.unsubscribe();
      },
      onError: () => {
        state.statusNote = RETRYING;
      },
    });
  subscription = newSubscription;
  setTimeout(() => {
    if (modelRef === state.modelRef && state.isFresh) state.statusNote = "Opening";
  }, OPENING_MS);
}

const buildPayload = () => ({
  owner: store.owner.value,
  subject: state.modelRef,
  n_points: state.isFresh ? 0 : state.pointCount,
  series_id: state.isFresh ? -1 : seriesId,
  snapshot_version: state.isFresh ? 0 : snapshotVersion,
  changes: state.isFresh ? -1 : (state.lastResponse.changes_version ?? -1),
});

function applyUpdate(response) {
  const privacy = formatMessage(response.private ?? ""),
    hasChangedConsent = !state.isFresh && privacy !== store.privacy.value;
  store.privacy.value = privacy;
  if (hasChangedConsent) {
    state.isFresh = true; // the next poll requests what the user may see now
    return;
  }
  const previousStatus = state.isFresh ? "" : state.status,
    hasNewStatus = response.status !== previousStatus && announcedUntil < Infinity;
  if (state.isFresh || hasNewStatus || Date.now() > announcedUntil) announce("");
  if (state.isFresh) resetView();
  if (messages.run.isConnectionLost) setMessage("run", "");
  response.changes ??= state.lastResponse.changes; // sent only after a change
  state.lastResponse = response;
  if (!state.announcedStatus) state.statusNote = "";
  state.status = response.status;
  state.finalScores = response.scores || null;
  updateStore(response);
  addPoints(response);
  applySnapshot(response);
  store.weightSeries.value = state.probeInfo?.in_browser ? response.series_id : null;
  if (state.viewedStep !== store.step.value) followStep(store.step.value);
  pollsWithoutSnapshot =
    TERMINAL_STATUSES.includes(state.status) && !state.displayedSnapshot
      ? pollsWithoutSnapshot + 1
      : 0;
  const hasChanged = state.status !== previousStatus;
  const hasNews = isTabOpen.value && response.snapshot && isDue("prediction");
  if (state.viewedStep === null && (hasChanged || hasNews)) predict();
  if (hasChanged) store.wakeModels();
}

function updateStore(response) {
  const steps = response.weight_steps || [],
    { value: known } = store.weightSteps;
  if (steps.length !== known.length || steps.at(-1) !== known.at(-1))
    store.weightSteps.value = steps;
  store.latestStep.value = response.step || 0;
  store.modelName.value = response.name || "";
}

function addPoints({ points, series_id: nextSeriesId }) {
  const isNew = points.whole || nextSeriesId !== seriesId;
  if (isNew || points.steps.length)
    state.lossCurve = Object.fromEntries(
      COLUMNS.map((name) => [
        name,
        isNew ? points[name] : [...state.lossCurve[name], ...points[name]],
      ]),
    );
  if (isNew || points.evaluations.length)
    state.evaluations = isNew ? points.evaluations : [...state.evaluations, ...points.evaluations];
  state.pointCount = state.lossCurve.steps.length > MAX_POINTS ? 0 : points.count;
  if (nextSeriesId !== seriesId) clearSnapshotCache();
  seriesId = nextSeriesId;
}

function applySnapshot(response) {
  if (response.probe_info) {
    state.probeInfo = response.probe_info;
    suggestInput(state.probeInfo.default_input);
  }
  if (!state.latestSnapshot && !response.snapshot && lacksWeights(response))
    state.hasNoFigures = true;
  if (!response.snapshot) return;
  state.latestSnapshot = response.snapshot;
  snapshotVersion = response.snapshot_version;
  if (state.viewedStep !== null) return;
  state.displayedSnapshot = state.latestSnapshot;
  state.isOld = false;
  state.hasNoFigures = false;
}

const STATUSES_WITHOUT_WEIGHTS = ["waiting", "stopped", "failed", "paused"];

/** Return whether a response without a snapshot is that of a model that has no weights. */
export const lacksWeights = (/** @type {{ status: string, step?: number }} */ { status, step }) =>
  ["not-found", "empty"].includes(status) || (!step && STATUSES_WITHOUT_WEIGHTS.includes(status));

/** A new suggestion replaces an unedited sequence. @param {string} sequence */
function suggestInput(sequence) {
  if (!sequence || sequence === store.suggestedInput.value) return;
  store.suggestedInput.value = sequence;
  if (store.input.value === null && state.viewedStep !== null) predict();
}

/**
 * Reset the state for a new model. The charts of the previous model stay, dimmed, until its first
 * response, so that the layout does not jump.
 */
export function resetView() {
  Object.assign(state, MODEL_STATE, { isFresh: false });
  store.weightSteps.value = [];
  seriesId = -1;
  snapshotVersion = 0;
  leaveSteps();
  for (const name of Object.keys(messages)) setMessage(/** @type {any} */ (name), "");
}
