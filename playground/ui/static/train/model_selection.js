import { takeHandOff } from "../shared/common.js";
import { store } from "../shared/store.js";
import { effect, untracked } from "../vendor/preact.js";
import { setOverlays } from "./overlays.js";
import { pollRun, renderStatus, resetView } from "./poller.js";
import { schedulePrediction } from "./prediction.js";
import { scheduleRender } from "./rendering.js";
import { loadRuns } from "./runs.js";
import { state } from "./state.js";
import { overlays } from "./status.js";
import { followStep } from "./timeline.js";
import { $, addViewListener } from "./view.js";

/** Open a model in all tabs. The open one is polled again, for example after Undo. */
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

function showModel(ref) {
  const generationId = ++state.pollGeneration,
    previousRef = state.modelRef;
  state.predictRequestId += 1;
  // Opening the overlaid run swaps the two curves.
  if (overlays.has(ref) && previousRef.startsWith("run:") && previousRef !== ref) {
    const colorIndex = overlays.get(ref).colorIndex;
    overlays.delete(ref);
    overlays.set(previousRef, { colorIndex, curve: null });
  }
  state.modelRef = ref;
  state.isFresh = true;
  if (!ref) {
    resetView();
    state.lastResponse = {};
    state.status = "empty";
    renderStatus();
    scheduleRender();
    return;
  }
  pollRun(generationId);
  setTimeout(() => {
    if (generationId === state.pollGeneration && state.isFresh)
      $(".status-text").textContent = "Opening";
  }, 400);
}

// Overlay the runs that another tab hands over; the store has its model.
function onNavigate() {
  const handOff = takeHandOff("Train"),
    overlaid = handOff.over;
  loadRuns().then(() => overlaid && setOverlays(overlaid));
}

export function initModelSelection() {
  addViewListener(window, "playground-Train", onNavigate);
}
