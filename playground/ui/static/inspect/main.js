// The Inspect tab: one model, step and input in three views.
import { effect, html, render, untracked } from "../vendor/preact.js";
import { parseLinkState } from "../shared/links.js";
import { store } from "../shared/store.js";
import { wholePageUrl } from "../shared/view.js";
import { ablationSpec } from "./ablation.js";
import { activationsSpec } from "./activations.js";
import { attentionSpec } from "./attention.js";
import { attributionSpec } from "./attribution.js";
import { embeddingsSpec } from "./embeddings.js";
import { gatesSpec } from "./gates.js";
import { headRolesSpec } from "./head_roles.js";
import { logitLensSpec } from "./logit_lens.js";
import { parametersSpec } from "./parameters.js";
import { patchingSpec } from "./patching.js";
import { watchSelection } from "./requests.js";
import { findSection, loadSavedSection, Sections, selectView } from "./sections.js";
import { attach, isVisible, openSection, root, VIEWS } from "./state.js";
import { Toolbar } from "./toolbar.js";

const DEFAULT_MODEL = "checkpoint:reverse";
const isEmbedded = Boolean(document.documentElement.dataset.embed);

Object.assign(VIEWS, {
  attention: attentionSpec,
  heads: headRolesSpec,
  ablation: ablationSpec,
  patch: patchingSpec,
  contributions: attributionSpec,
  trace: activationsSpec,
  lens: logitLensSpec,
  embeddings: embeddingsSpec,
  gates: gatesSpec,
  parameters: parametersSpec,
});

/** The options of a section as the address has them. @param {string} section */
const readOptions = (section) => {
  const spec = VIEWS[section];
  return JSON.stringify((spec.viewOptions ?? spec.options)?.() ?? {});
};
/** @type {Record<string, string>} */
const defaults = Object.fromEntries(Object.keys(VIEWS).map((name) => [name, readOptions(name)]));

/** The open section and its options in the address. */
const inspectView = {
  read: () => {
    const section = openSection.value,
      options = readOptions(section);
    return { section, options: options === defaults[section] ? null : options };
  },
  apply(/** @type {URLSearchParams} */ params) {
    openSection.value = findSection(params.get("section")) ?? openSection.value;
    const options = parseLinkState(params.get("options") ?? defaults[openSection.value]);
    VIEWS[openSection.value].restoreOptions?.(options);
    if (isStarted) selectView(openSection.value);
  },
};

const isKnown = (ref) => Boolean(ref?.startsWith("watch:") || store.find(ref));

let isStarted = false;
function startIfVisible() {
  if (isStarted || !isVisible()) return;
  // An embedded view has no list of models.
  if (store.models.value.length && !isKnown(store.model.value))
    store.openRememberedModel(DEFAULT_MODEL);
  else if (!store.model.value || !(store.models.value.length || isEmbedded)) return;
  isStarted = true;
  watchSelection();
  selectView(openSection.value);
}

let followed = ""; // the head of Train that this tab showed last
/** Show the head that the user has selected in Train. */
function followTrain() {
  const { kind, head } = store.views.value.train?.read() ?? {},
    key = JSON.stringify([kind, head]);
  if (!isVisible() || key === followed || !(kind || head)) return;
  followed = key;
  const [layer, index] = (head ?? "").split(".").map((number) => Number(number) - 1);
  attentionSpec.restoreOptions({
    kind: kind ?? "cross",
    mode: "teacher-forced", // as in the diagram
    ...(head && { layer, head: index }),
  });
  if (isStarted && openSection.value === "attention") selectView("attention");
}

const Inspect = () =>
  html`<h2 class="pg-visually-hidden">Inspect</h2>
    <${Toolbar} />
    <${Sections} />
    <a
      class="pg-quiet open-full-page"
      target="_blank"
      rel="noopener"
      href=${isEmbedded ? wholePageUrl() : undefined}
      >Open in Transformer Playground</a
    >`;

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  openSection.value = findSection(loadSavedSection()) ?? openSection.value;
  store.addView("inspect", inspectView);
  render(html`<${Inspect} />`, root);
  await attach(panel);
  effect(() => {
    void [store.tab.value, store.models.value, store.model.value];
    untracked(() => {
      followTrain();
      startIfVisible();
    });
  });
}
