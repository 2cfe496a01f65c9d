import { takeHandOff } from "../shared/common.js";
import { setOverlays } from "./overlays.js";
import { pollRun, renderStatus, resetView } from "./poller.js";
import { scheduleRender } from "./rendering.js";
import { loadRuns, renderModelSelect } from "./runs.js";
import { state } from "./state.js";
import { overlays } from "./status.js";
import { $, addViewListener } from "./view.js";

// Open another model; the browser stores it for the next visit.
export function openModel(ref) {
  const generationId = ++state.pollGeneration,
    previousRef = state.modelRef;
  state.predictRequestId += 1;
  // Opening the overlaid run swaps the two curves.
  if (overlays.has(ref) && previousRef.startsWith("run:") && previousRef !== ref) {
    const colorIndex = overlays.get(ref).colorIndex;
    overlays.delete(ref);
    overlays.set(previousRef, { colorIndex, curve: null });
  }
  state.modelRef = ref || "";
  state.isFresh = true;
  try {
    if (!state.modelRef.startsWith("watch:"))
      localStorage.setItem("transformer-playground-subject", state.modelRef);
  } catch (error) {
    /* this browser has no storage */
  }
  if (/[?&](watch|model)=/.test(location.search) && state.modelRef !== state.linkedModel)
    history.replaceState(null, "", location.pathname);
  renderModelSelect();
  if (!state.modelRef) {
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

// Open the model that another tab hands over.
function onNavigate() {
  const handOff = takeHandOff("Train"),
    { subject: ref, over: overlaid } = typeof handOff === "string" ? { subject: handOff } : handOff;
  loadRuns().then(() => {
    openModel(ref);
    if (overlaid) setOverlays(overlaid);
  });
}

export function initModelSelection() {
  addViewListener(window, "playground-Train", onNavigate);
}
