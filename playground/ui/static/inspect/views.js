import { el } from "../shared/dom.js";
import { saveState } from "./export.js";
import { redrawView, scheduleRefresh, showError } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export const VIEWS = { __proto__: null }; // no prototype: a link may contain any view name
export const queryView = (view, selector) => VIEWS[view].box.querySelector(selector);

export function buildViews() {
  for (const [name, spec] of Object.entries(VIEWS)) {
    const tab = el("button", { type: "button", textContent: spec.title, id: "view-" + name });
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
    spec.box.setAttribute("aria-labelledby", "view-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
export function selectView(name) {
  if (!VIEWS[name]) name = "attention";
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  showError("");
  $(".stage").classList.remove("waiting");
  saveState();
  redrawView(name);
  scheduleRefresh(name, 0);
}
