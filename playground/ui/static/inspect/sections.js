// The tabs of the three views, the parts of the selected one, and the open section.
import { html } from "../vendor/preact.js";
import { SegmentedControl, Tabs } from "../shared/components/segments.js";
import { store } from "../shared/store.js";
import { isWaiting } from "./requests.js";
import { notApplicable, openSection, results, VIEWS } from "./state.js";
import {
  findSubView,
  hasSection,
  openSubView,
  sectionsOf,
  selectView,
  SUB_VIEWS,
} from "./views.js";

/** Why the model does not have the open section, and the views in which it has another. */
const NotApplicable = ({ reason }) =>
  html`<p class="not-applicable">${reason}</p>
    <div class="pg-row row">
      ${SUB_VIEWS.map(({ value, label }) => {
        const isOther = (name) => name !== openSection.value && hasSection(name),
          section = sectionsOf(value).find(isOther);
        return (
          section &&
          html`<button
            key=${value}
            type="button"
            class="pg-button"
            onClick=${() => selectView(section)}
          >
            Open ${label}
          </button>`
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
  return html`<${Tabs}
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
