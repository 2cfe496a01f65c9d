// The live view of the Train tab. It polls the server for new data and holds no connection open.
// The page computes no values: the training and inspection processes do.
import { connectAddress } from "../shared/address.js";
import { sleep } from "../shared/api.js";
import { RETRYING } from "../shared/strings.js";
import { store } from "../shared/store.js";
import { initControls } from "./controls.js";
import { initCharts } from "./curves.js";
import { initDiagram } from "./diagram/diagram.js";
import { initInput } from "./input.js";
import { followSelection, initModelSelection, openModel } from "./model_selection.js";
import { loadSavedOverlays, setOverlays } from "./overlays.js";
import { resetView } from "./poller.js";
import { initRunDifferences } from "./run_differences.js";
import { initRunList } from "./run_list.js";
import { loadRuns, pollRuns } from "./runs.js";
import { initSavedCheckpoints } from "./saved_checkpoints.js";
import { keepSession } from "./session.js";
import { embeddedView, initShareDialog } from "./share_dialog.js";
import { initShortcuts } from "./shortcuts.js";
import { state } from "./state.js";
import { initTimeline } from "./timeline.js";
import { $, attach, root } from "./view.js";

let isStarted = false;
// The server sets the value when the page loads, and when a run starts.
function onValueChange(value) {
  state.owner = store.owner.value = value.owner || "";
  keepSession();
  if (value.subject) {
    openModel(value.subject);
    loadRuns();
  } else if (!isStarted) start(value.first || "");
}

async function start(defaultModel) {
  isStarted = true;
  if (embeddedView) store.readAddress();
  else connectAddress();
  state.defaultModel = defaultModel;
  state.linkedModel = store.model.value?.startsWith("run:") ? "" : (store.model.value ?? "");
  followSelection();
  if (!(await waitForRuns())) return;
  if (!store.model.value) store.openRememberedModel(defaultModel);
  if (!store.model.value) openModel("");
  if (!store.model.value?.startsWith("watch:")) setOverlays(loadSavedOverlays());
}

// Load the lists, unless the view leaves the page.
async function waitForRuns() {
  while (!(await loadRuns())) {
    $(".status-text").textContent = RETRYING;
    await sleep(1000);
    if (!root.isConnected) return false;
  }
  return true;
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
resetView();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollRuns();
}
