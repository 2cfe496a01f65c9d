// The Inspect tab: a model, a training step, an input sequence, and one view of them at a time.
// Each view requests its data from the server and draws the response. The server computes every
// number from the model.
import { sleepWhileHidden, takeHandOff } from "../shared/common.js";
import { ablationSpec } from "./ablation.js";
import { activationsSpec } from "./activations.js";
import { attentionSpec } from "./attention.js";
import { decodingSpec } from "./decoding.js";
import { embeddingsSpec } from "./embeddings.js";
import { initExport, saveState } from "./export.js";
import { headRolesSpec } from "./head_roles.js";
import { logitLensSpec } from "./logit_lens.js";
import { masksSpec } from "./masks.js";
import { redrawView, scheduleRefresh } from "./requests.js";
import { loadModels, loadSteps, renderStepLabel, selectModel } from "./selected_model.js";
import { state } from "./state.js";
import { $, addViewListener, attach, onResizeOrThemeChange, root } from "./view.js";
import { buildViews, selectView, VIEWS } from "./views.js";

let isStarted = false;

let debounceTimer;

function onValueChange(value) {
  state.owner = value.owner || "";
  let linkState = {};
  try {
    linkState =
      JSON.parse(value.link || "null") ||
      JSON.parse(localStorage.getItem("transformer-playground-inspect") || "{}");
  } catch (error) {
    /* the stored value is malformed */
  }
  if (!isStarted) {
    if (typeof linkState.subject === "string") state.subject = linkState.subject;
    if (Number.isInteger(linkState.step)) state.step = linkState.step;
    if (typeof linkState.text === "string") state.text = linkState.text.slice(0, 400);
    if (typeof linkState.view === "string" && VIEWS[linkState.view]) state.view = linkState.view;
    if (linkState.options && VIEWS[state.view].restoreOptions)
      try {
        VIEWS[state.view].restoreOptions(linkState.options);
      } catch (error) {
        /* the link is malformed */
      }
  }
  $(".sequence").value = state.text;
}
async function init() {
  isStarted = true;
  const sent = takeHandOff("Inspect");
  if (sent) {
    state.subject = sent.subject;
    state.step = sent.step ?? null;
    applyHandOff(sent);
  }
  const remembered = state.subject;
  await loadModels();
  if (
    remembered &&
    !/^watch:/.test(remembered) &&
    ![...state.runs, ...state.checkpoints].some((each) => each.subject === remembered)
  ) {
    state.subject = "";
    $(".subject").dataset.signature = "";
    await loadModels();
  }
  loadSteps();
  selectView(state.view);
}
async function pollLoop() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(300);
    if (
      !(state.owner || document.documentElement.dataset.embed) ||
      !root.offsetParent ||
      document.hidden
    )
      continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 12 === 0) {
      await loadModels();
      const run = state.runs.find((each) => each.subject === state.subject);
      if (run && run.status === "training") {
        await loadSteps();
        if (state.step === null && !VIEWS[state.view].slow) scheduleRefresh();
      }
    }
  }
}
// The Train tab can send a model here before this tab is initialized.
function onNavigate() {
  const handOff = isStarted && takeHandOff("Inspect");
  if (!handOff) return;
  applyHandOff(handOff);
  loadModels().then(() => {
    selectModel(handOff.subject, handOff.step ?? null);
    selectView(state.view);
  });
}
// Another tab may name the view, its options and the sequence.
function applyHandOff({ view, options, text }) {
  if (VIEWS[view]) {
    state.view = view;
    VIEWS[view].restoreOptions?.(options);
  }
  if (text) $(".sequence").value = state.text = text;
}

// in the order of their buttons
Object.assign(VIEWS, {
  attention: attentionSpec,
  steps: decodingSpec,
  heads: headRolesSpec,
  away: ablationSpec,
  lens: logitLensSpec,
  walk: activationsSpec,
  symbols: embeddingsSpec,
  sizes: masksSpec,
});
initExport();

$(".sequence").addEventListener("input", () => {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(() => {
    state.text = $(".sequence").value;
    saveState();
    scheduleRefresh(state.view, 0);
  }, 20);
});
$(".subject").addEventListener("change", (event) => selectModel(event.target.value));
$(".step").addEventListener("input", (event) => {
  const at = +event.target.value;
  state.step = at >= state.weightSteps.length - 1 ? null : state.weightSteps[at];
  renderStepLabel();
  saveState();
  scheduleRefresh();
});
onResizeOrThemeChange(() => redrawView());
addViewListener(window, "playground-Inspect", onNavigate);
buildViews();

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollLoop();
}
