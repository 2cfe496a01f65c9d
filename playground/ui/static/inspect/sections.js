// The tabs of the sub-views, and the sections of the selected one.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { Tabs } from "../shared/components/segments.js";
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

/** Why the model does not have the section, and the views that it has. */
const NotApplicable = ({ reason }) =>
  html`<p class="not-applicable">${reason}</p>
    <div class="pg-row row">
      ${SUB_VIEWS.filter(({ value }) => sectionsOf(value).some(hasSection)).map(
        ({ value, label }) =>
          html`<button
            key=${value}
            type="button"
            class="pg-button"
            onClick=${() => openSubView(value)}
          >
            Open ${label}
          </button>`,
      )}
    </div>`;

/** The content of a section. */
function SectionBody({ name, isOpen }) {
  const spec = VIEWS[name],
    data = results.value[name],
    reason = isOpen && notApplicable.value;
  return html`<div class=${"of-" + name} id=${"body-" + name} hidden=${!isOpen}>
    ${
      reason
        ? html`<${NotApplicable} reason=${reason} />`
        : html`<p class="explain pg-quiet">${spec.explain}</p>`
    }
    <div hidden=${Boolean(reason)}>${data && html`<${spec.Component} data=${data} />`}</div>
  </div>`;
}

/** A section with a heading that opens it. The sections of a sub-view are open one at a time. */
function FoldedSection({ name, isOpen }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  // A section above that closes moves the opened one, possibly out of the window.
  useEffect(() => {
    if (isOpen && heading.current && heading.current.getBoundingClientRect().top < 0)
      heading.current.scrollIntoView();
  }, [isOpen]);
  return html`<section class="folded">
    <h3 ref=${heading}>
      <button
        type="button"
        id=${"section-" + name}
        aria-expanded=${String(isOpen)}
        aria-controls=${"body-" + name}
        onClick=${() => selectView(name)}
      >
        ${VIEWS[name].title}
      </button>
    </h3>
    <${SectionBody} name=${name} isOpen=${isOpen} />
  </section>`;
}

function SubView({ subView: { value: name, label }, open }) {
  const sections = sectionsOf(name),
    displayed = sections.filter((each) => each === open || hasSection(each));
  return html`<div
    role="tabpanel"
    id=${"panel-" + name}
    aria-labelledby=${"view-" + name}
    hidden=${!sections.includes(open)}
  >
    ${
      sections.length > 1
        ? displayed.map(
            (each) => html`<${FoldedSection} key=${each} name=${each} isOpen=${each === open} />`,
          )
        : html`<h3 class="pg-visually-hidden">${label}</h3>
            <${SectionBody} name=${sections[0]} isOpen=${sections[0] === open} />`
    }
  </div>`;
}

export const Sections = () =>
  html`<${Tabs}
      label="Views"
      prefix="view"
      options=${SUB_VIEWS}
      value=${findSubView(openSection.value).value}
      onChange=${openSubView}
    />
    <div
      class=${"stage" + (store.isInputInvalid.value ? " stale" : isWaiting.value ? " waiting" : "")}
    >
      ${SUB_VIEWS.map(
        (subView) =>
          html`<${SubView} key=${subView.value} subView=${subView} open=${openSection.value} />`,
      )}
    </div>`;
