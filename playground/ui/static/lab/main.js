// The Lab tab: prepared experiments, the owner's experiments, the open experiment, and replications
// of published claims. Experiments run on the server. The tab polls them and draws their results;
// it computes nothing itself.
import { sleepWhileHidden } from "../shared/common.js";
import { buildExperimentForm } from "./experiment_form.js";
import { openExperiment, refresh } from "./experiments.js";
import { buildReplications, loadReplications, shouldRefreshReplications } from "./replications.js";
import { initRequests, loadLocal } from "./requests.js";
import { buildResults } from "./results.js";
import { state } from "./state.js";
import { attach, root } from "./view.js";

let isStarted = false;

function onValueChange(value) {
  state.owner = value.owner || "";
}
async function init() {
  isStarted = true;
  if (typeof loadLocal("open") === "string") state.open = loadLocal("open");
  await refresh();
  if (!state.open && state.experiments.length) openExperiment(state.experiments[0].id);
}
async function pollLoop() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(250);
    if (!state.owner || !root.offsetParent || document.hidden) continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (Date.now() >= state.nextPollAt) await refresh();
    if (shouldRefreshReplications()) await loadReplications();
  }
}

initRequests();
buildExperimentForm();
buildResults();
buildReplications();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollLoop();
}
