// The open model, which any tab may select.
import { takeHandOff } from "../shared/common.js";
import { store } from "../shared/store.js";
import { effect, untracked } from "../vendor/preact.js";
import { overlays, setOverlays, swapOverlay } from "./overlays.js";
import { resetView, startPolling, stopPolling } from "./polling.js";
import { schedulePrediction } from "./prediction.js";
import { scheduleRender } from "./rendering.js";
import { loadRuns } from "./runs.js";
import { state } from "./state.js";
import { followStep } from "./timeline.js";
import { addViewListener } from "./view.js";

/**
 * Open a model in all tabs. The open one is polled again, for example after Undo.
 * @param {string} ref
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
  effect(() => {
    void store.input.value;
    untracked(schedulePrediction);
  });
}

/** @param {string} ref */
function showModel(ref) {
  const previousRef = state.modelRef;
  state.modelGeneration += 1;
  state.predictRequestId += 1;
  if (overlays.value.has(ref) && previousRef.startsWith("run:") && previousRef !== ref)
    swapOverlay(ref, previousRef);
  state.modelRef = ref;
  state.isFresh = true;
  if (ref) {
    startPolling();
    return;
  }
  stopPolling();
  resetView();
  state.lastResponse = {};
  state.status = "empty";
  state.hasNoFigures = true;
  scheduleRender();
}

/** Overlay the runs that another tab hands over; the store has its model. */
async function onNavigate() {
  const { over } = takeHandOff("Train");
  await loadRuns();
  if (over) setOverlays(over);
}

export function initModelSelection() {
  addViewListener(window, "playground-Train", onNavigate);
}
