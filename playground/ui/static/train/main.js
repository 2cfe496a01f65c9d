// The live view of the Train tab. It polls the server for new data and holds no connection open.
// The page computes no values: the training and inspection processes do.
import { sleep } from "../shared/api.js";
import { navigate } from "../shared/common.js";
import { initControls } from "./controls.js";
import { initCharts } from "./curves.js";
import { initDiagram } from "./diagram/diagram.js";
import { initHeader } from "./header.js";
import { initInput } from "./input.js";
import { initModelSelection, openModel } from "./model_selection.js";
import { loadSavedOverlays, setOverlays } from "./overlays.js";
import { resetView } from "./poller.js";
import { initRunDifferences } from "./run_differences.js";
import { initRunList } from "./run_list.js";
import { availableModels, isAvailable, loadRuns, pollRuns } from "./runs.js";
import { initSavedCheckpoints } from "./saved_checkpoints.js";
import { keepSession, restoreTab } from "./session.js";
import { initShareDialog } from "./share_dialog.js";
import { initShortcuts } from "./shortcuts.js";
import { state } from "./state.js";
import { initTimeline } from "./timeline.js";
import { $, attach, root } from "./view.js";

function onValueChange(value) {
  state.owner = value.owner || "";
  state.defaultModel = value.first || "";
  keepSession();
  const query = new URLSearchParams(location.search),
    linkedTab =
      ["Inspect", "Compare", "Lab", "Hub", "Learn"].find((tab) => query.has(tab.toLowerCase())) ||
      (query.has("bug") ? "Learn" : "");
  if (linkedTab && !window.playground.linked) {
    window.playground.linked = true;
    setTimeout(() => navigate(linkedTab), 0);
  }
  restoreTab();
  let remembered = "";
  try {
    remembered = localStorage.getItem("transformer-playground-subject") || "";
  } catch (error) {
    /* this browser has no storage */
  }
  if (value.subject) {
    if (!value.subject.startsWith("run:")) state.linkedModel = value.subject;
    openModel(value.subject);
    loadRuns();
    return;
  }
  waitForRuns().then((yes) => {
    if (yes) {
      openModel(
        isAvailable(remembered)
          ? remembered
          : isAvailable(state.defaultModel)
            ? state.defaultModel
            : availableModels()[0] || "",
      );
      setOverlays(loadSavedOverlays());
    }
  });
}

// Update the list from a response, unless another model was opened meanwhile.
async function waitForRuns() {
  const generationId = state.pollGeneration;
  while (!(await loadRuns())) {
    $(".status-text").textContent = "The server did not respond; retrying";
    await sleep(1000);
    if (generationId !== state.pollGeneration || !root.isConnected) return false;
  }
  return generationId === state.pollGeneration;
}

initDiagram();
initModelSelection();
initInput();
initCharts();
initTimeline();
initRunList();
initRunDifferences();
initControls();
initSavedCheckpoints();
initShortcuts();
initShareDialog();
initHeader();
resetView();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollRuns();
}
