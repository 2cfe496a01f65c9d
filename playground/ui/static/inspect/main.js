// The Inspect tab: one model, step and input in four sub-views.
import { html, render } from "../vendor/preact.js";
import { takeHandOff } from "../shared/common.js";
import { poller } from "../shared/poller.js";
import { rememberedModel, store } from "../shared/store.js";
import { wholePageUrl } from "../shared/view.js";
import { ablationSpec } from "./ablation.js";
import { activationsSpec } from "./activations.js";
import { attentionSpec } from "./attention.js";
import { embeddingsSpec } from "./embeddings.js";
import { loadSavedSection } from "./export.js";
import { generationSpec } from "./generation.js";
import { headRolesSpec } from "./head_roles.js";
import { logitLensSpec } from "./logit_lens.js";
import { masksSpec } from "./masks.js";
import { redrawView, refreshIfStale, subscribeToSteps, watchSelection } from "./requests.js";
import { Sections } from "./sections.js";
import { openSection, pageWidth } from "./state.js";
import { Toolbar } from "./toolbar.js";
import { addViewListener, attach, isVisible, onResizeOrThemeChange, root } from "./view.js";
import { findSection, selectView, VIEWS } from "./views.js";

const MODELS_INTERVAL_MS = 3600;
const DEFAULT_MODEL = "checkpoint:reverse";

Object.assign(VIEWS, {
  attention: attentionSpec,
  steps: generationSpec,
  heads: headRolesSpec,
  away: ablationSpec,
  walk: activationsSpec,
  lens: logitLensSpec,
  symbols: embeddingsSpec,
  sizes: masksSpec,
});

/** Open what a link or another tab selects. */
function openTarget({ subject, step, text, view, options }) {
  if (typeof subject === "string" && subject)
    store.openModel(subject, Number.isInteger(step) ? step : null);
  if (typeof text === "string" && text) store.input.value = text.slice(0, 400);
  const section = findSection(view);
  if (!section) return;
  openSection.value = section;
  try {
    VIEWS[section].restoreOptions?.(options ?? {});
  } catch {
    // the link is malformed
  }
}

const isKnown = (ref) => Boolean(ref?.startsWith("watch:") || store.find(ref));

/** Return the first model to inspect, if no tab has opened one. */
const findDefaultModel = () =>
  (store.find(DEFAULT_MODEL) ?? store.runs.value[0] ?? store.checkpoints.value[0])?.subject ?? null;

let isStarted = false;
function startIfVisible() {
  if (isStarted || !isVisible()) return;
  const isEmbedded = Boolean(document.documentElement.dataset.embed),
    hasModels = store.runs.value.length + store.checkpoints.value.length > 0;
  if (!hasModels && !isEmbedded) return;
  isStarted = true;
  const handOff = takeHandOff("Inspect");
  if (handOff) openTarget(handOff);
  else if (!store.model.value) store.model.value = rememberedModel() || null;
  if (hasModels && !isKnown(store.model.value)) {
    const model = findDefaultModel();
    if (model) store.openModel(model);
  }
  watchSelection();
  selectView(openSection.value);
}

// The Train tab can hand over a model before this tab is initialized.
function onNavigate() {
  const handOff = isStarted && takeHandOff("Inspect");
  if (!handOff) return;
  openTarget(handOff);
  selectView(openSection.value);
}

function onValueChange(value) {
  store.owner.value = value.owner || "";
  if (isStarted) return;
  openSection.value = findSection(loadSavedSection()) ?? openSection.value;
  try {
    openTarget(JSON.parse(value.link || "null") || {});
  } catch {
    // the link is malformed
  }
}

const Inspect = () =>
  html`<h2 class="pg-unseen">Inspect</h2>
    <${Toolbar} />
    <${Sections} />
    <a
      class="open-whole"
      target="_blank"
      rel="noopener"
      href=${document.documentElement.dataset.embed && wholePageUrl()}
      >Open in Transformer Playground</a
    >`;

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  render(html`<${Inspect} />`, root);
  await attach(component, onValueChange);
  store.subscribeToModels(isVisible, poller, MODELS_INTERVAL_MS);
  store.runs.subscribe(startIfVisible);
  store.checkpoints.subscribe(startIfVisible);
  subscribeToSteps();
  addViewListener(window, "playground-Inspect", onNavigate);
  onResizeOrThemeChange(() => {
    startIfVisible();
    if (root.clientWidth) pageWidth.value = root.clientWidth;
    if (!isStarted || !isVisible()) return;
    refreshIfStale();
    redrawView();
  });
}
