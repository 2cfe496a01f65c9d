// The tabs of the three views, the parts of the selected one, and the open section.
import { Button } from "../shared/components/buttons.js";
import { html } from "../vendor/preact.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { loadJson, saveJson } from "../shared/storage.js";
import { store } from "../shared/store.js";
import { isLocal } from "./local_views.js";
import { isWaiting, refresh, showError } from "./requests.js";
import { notApplicable, openSection, prediction, results, VIEWS } from "./state.js";

/** Why the model does not have the open section, and the views in which it has another. */
const NotApplicable = ({ reason }) =>
  html`<p class="not-applicable">${reason}</p>
    <div class="pg-row row">
      ${SUB_VIEWS.map(({ value, label }) => {
        const isOther = (name) => name !== openSection.value && hasSection(name),
          section = sectionsOf(value).find(isOther);
        return (
          section &&
          html`<${Button} key=${value} onClick=${() => selectView(section)}>Open ${label}<//>`
        );
      })}
    </div>`;

/** The parts of a view, without those that the model does not have. */
function Parts({ subView, open }) {
  const parts = sectionsOf(subView).filter((each) => each === open || hasSection(each));
  return (
    parts.length > 1 &&
    html`<div class="pg-row row parts">
      <${SegmentedControl}
        label="Part"
        options=${parts.map((value) => ({ value, label: VIEWS[value].title }))}
        value=${open}
        onChange=${selectView}
      />
    </div>`
  );
}

export function Sections() {
  const name = openSection.value,
    subView = findSubView(name).value,
    { title, explain, Component } = VIEWS[name],
    data = results.value[name],
    reason = notApplicable.value,
    state = store.isInputInvalid.value ? " stale" : isWaiting.value ? " waiting" : "";
  return html`<${SegmentedControl}
      label="Views"
      prefix="view"
      options=${SUB_VIEWS}
      value=${subView}
      onChange=${openSubView}
    />
    <div class=${"stage" + state} role="tabpanel" aria-labelledby=${"view-" + subView}>
      <${Parts} subView=${subView} open=${name} />
      <h3 class="pg-visually-hidden">${title}</h3>
      <div key=${name} class=${"of-" + name}>
        ${
          reason
            ? html`<${NotApplicable} reason=${reason} />`
            : html`<p class="explain pg-quiet">${explain}</p>
                ${data && html`<${Component} data=${data} />`}`
        }
      </div>
    </div>`;
}

// The three views, their sections, and which section is open.

const STORAGE_KEY = "transformer-playground-inspect";

const SUB_VIEWS = [
  { value: "attention", label: "Attention" },
  { value: "matters", label: "What matters" },
  { value: "numbers", label: "Every number" },
];
/** The section that was open last in each sub-view. @type {Record<string, string>} */
const lastSections = {};

// Return whether the open model has a section; most models have no gates. The page ablates all
// models that it runs.
export const hasSection = (/** @type {string} */ name) =>
  (name === "ablation" && isLocal()) ||
  (prediction.value?.views?.includes(name) ?? name !== "gates");

/** Return the sections of a sub-view, in the order of main.js. @param {string} subView */
const sectionsOf = (subView) =>
  Object.keys(VIEWS).filter((name) => VIEWS[name].subView === subView);

/** Return the sub-view that contains a section. @param {string} section */
export const findSubView = (section) =>
  SUB_VIEWS.find((each) => each.value === VIEWS[section]?.subView) ?? SUB_VIEWS[0];

/** Return the name of a section in a link; null if there is none. @param {unknown} name */
export const findSection = (name) => (typeof name === "string" && VIEWS[name] ? name : null);

/** The section that was open at the last visit. */
export const loadSavedSection = () => loadJson(STORAGE_KEY)?.view;

/** @param {string} section */
export function selectView(section) {
  openSection.value = section;
  lastSections[findSubView(section).value] = section;
  showError("");
  notApplicable.value = "";
  saveJson(STORAGE_KEY, { view: section });
  refresh(0);
}

/** Open the section of a view that was open last. @param {string} name */
function openSubView(name) {
  const sections = sectionsOf(name);
  selectView([lastSections[name], ...sections].find(hasSection) ?? sections[0]);
}
