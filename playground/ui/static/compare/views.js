import { el } from "../shared/dom.js";
import { state } from "./state.js";
import { saveLocal } from "./storage.js";
import { $ } from "./view.js";

// A view is an object in VIEWS:
//
//   title      the label of its tab
//   explain    the text under the tabs
//   build(box) creates its elements and its job handlers, once
//   show()     called when it becomes visible or must be redrawn (new width, light or dark);
//              optional
//   fields()   stores its field values and returns their storage keys, for links; optional
//   chosen()   called after each model selection, including the first; optional
export const VIEWS = { __proto__: null }; // no prototype: a link may contain any view name

export function buildViews() {
  for (const [name, spec] of Object.entries(VIEWS)) {
    const tab = el("button", { type: "button", textContent: spec.title, id: "compare-" + name });
    tab.dataset.title = spec.title; // reserves the width of the bold label
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => selectView(name));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        names = Object.keys(VIEWS);
      if (!by) return;
      event.preventDefault();
      const next = names[(names.indexOf(name) + by + names.length) % names.length];
      selectView(next);
      VIEWS[next].tab.focus();
    });
    $(".views").append(tab);
    spec.tab = tab;
    spec.box = el("div", { className: "of-" + name, hidden: true });
    spec.box.setAttribute("role", "tabpanel");
    spec.box.setAttribute("aria-labelledby", "compare-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
export function selectView(name) {
  if (!VIEWS[name]) name = Object.keys(VIEWS)[0];
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  saveLocal("view", name);
  showView();
}
export function showView() {
  const spec = VIEWS[state.view];
  if (spec && spec.show && spec.box && spec.box.offsetParent) spec.show();
}
