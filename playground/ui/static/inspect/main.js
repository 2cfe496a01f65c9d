// The Inspect tab: one model, step and input in four sub-views.
import { html, render } from "../vendor/preact.js";
import { takeHandOff } from "../shared/common.js";
import { parseLinkState, takeQueryParam } from "../shared/links.js";
import { store } from "../shared/store.js";
import { wholePageUrl } from "../shared/view.js";
import { ablationSpec } from "./ablation.js";
import { activationsSpec } from "./activations.js";
import { attentionSpec } from "./attention.js";
import { embeddingsSpec } from "./embeddings.js";
import { gatesSpec } from "./gates.js";
import { generationSpec } from "./generation.js";
import { headRolesSpec } from "./head_roles.js";
import { logitLensSpec } from "./logit_lens.js";
import { parametersSpec } from "./parameters.js";
import { patchingSpec } from "./patching.js";
import { refreshIfStale, watchSelection } from "./requests.js";
import { Sections } from "./sections.js";
import { openSection, pageWidth, VIEWS } from "./state.js";
import { Toolbar } from "./toolbar.js";
import { addViewListener, attach, isVisible, onResizeOrThemeChange, root } from "./view.js";
import { findSection, loadSavedSection, selectView } from "./views.js";

const DEFAULT_MODEL = "checkpoint:reverse";
const isEmbedded = Boolean(document.documentElement.dataset.embed);

Object.assign(VIEWS, {
  attention: attentionSpec,
  steps: generationSpec,
  heads: headRolesSpec,
  ablation: ablationSpec,
  patch: patchingSpec,
  trace: activationsSpec,
  lens: logitLensSpec,
  embeddings: embeddingsSpec,
  parameters: parametersSpec,
  gates: gatesSpec,
});

/** Open the section that a link or another tab names. */
function openTarget({ view, options }) {
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

let isStarted = false;
function startIfVisible() {
  if (isStarted || !isVisible()) return;
  // An embedded view has no list of models.
  if (store.models.value.length && !isKnown(store.model.value))
    store.openRememberedModel(DEFAULT_MODEL);
  else if (!store.model.value || !(store.models.value.length || isEmbedded)) return;
  isStarted = true;
  takeQueryParam("inspect");
  openTarget(takeHandOff("Inspect") ?? {});
  watchSelection();
  selectView(openSection.value);
}

// Another tab has opened a model here, possibly before this tab is initialized.
function onNavigate() {
  const handOff = isStarted && takeHandOff("Inspect");
  if (!handOff) return;
  openTarget(handOff);
  selectView(openSection.value);
}

/** Open the section that the address names, or else the last one. */
function openFirstSection() {
  openSection.value = findSection(loadSavedSection()) ?? openSection.value;
  openTarget(parseLinkState(new URLSearchParams(location.search).get("inspect")));
}

const Inspect = () =>
  html`<h2 class="pg-visually-hidden">Inspect</h2>
    <${Toolbar} />
    <${Sections} />
    <a
      class="open-full-page"
      target="_blank"
      rel="noopener"
      href=${isEmbedded ? wholePageUrl() : undefined}
      >Open in Transformer Playground</a
    >`;

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  openFirstSection();
  render(html`<${Inspect} />`, root);
  await attach(panel);
  store.models.subscribe(startIfVisible);
  store.model.subscribe(startIfVisible);
  addViewListener(window, "playground-Inspect", onNavigate);
  onResizeOrThemeChange(() => {
    startIfVisible();
    if (root.clientWidth) pageWidth.value = root.clientWidth;
    if (isStarted && isVisible()) refreshIfStale();
  });
}
