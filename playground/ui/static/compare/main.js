// The Compare tab: the user's model and one view at a time that compares it with others. Everything
// that needs a pretrained model is a job in a separate process, which starts with the first job.
// The page polls the job and displays its results; it computes nothing itself.
import { sleepWhileHidden, takeHandOff } from "../shared/common.js";
import { attentionSpec } from "./attention.js";
import { benchmarkSpec } from "./benchmark.js";
import { embeddingsSpec } from "./embeddings.js";
import { finetuneSpec } from "./finetune.js";
import { inferenceSpec } from "./inference.js";
import { jobRunners } from "./jobs.js";
import { matchedParametersSpec } from "./matched_parameters.js";
import { listLocalModels } from "./pretrained_models.js";
import { currentModel, initSelectedModel, loadModels, selectModel } from "./selected_model.js";
import { state } from "./state.js";
import { initStorage, loadLocal } from "./storage.js";
import { addViewListener, attach, root } from "./view.js";
import { buildViews, selectView, VIEWS } from "./views.js";

let isStarted = false;

function onValueChange(value) {
  state.owner = value.owner || "";
}
async function init() {
  isStarted = true;
  if (typeof loadLocal("subject") === "string") state.subject = loadLocal("subject");
  const sent = takeHandOff("Compare");
  if (sent) state.subject = sent.subject;
  await loadModels();
  if (currentModel()) selectModel(state.subject);
  selectView(typeof loadLocal("view") === "string" ? loadLocal("view") : "table");
  jobRunners.forEach((each) => each.find());
  listLocalModels(); // this starts the model process, so it waits until the tab is visible
}
async function pollLoop() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(300);
    if (!state.owner || !root.offsetParent || document.hidden) continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 12 === 0) await loadModels();
  }
}

// in the order of their buttons
Object.assign(VIEWS, {
  table: benchmarkSpec,
  families: matchedParametersSpec,
  finetune: finetuneSpec,
  free: inferenceSpec,
  attention: attentionSpec,
  meaning: embeddingsSpec,
});
initStorage();
initSelectedModel();

addViewListener(window, "playground-Compare", () => {
  const sent = isStarted && takeHandOff("Compare");
  if (sent) loadModels().then(() => selectModel(sent.subject));
});
buildViews();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollLoop();
}
