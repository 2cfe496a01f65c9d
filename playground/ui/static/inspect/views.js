// The three views, their sections, and which section is open.
import { loadJson, saveJson } from "../shared/storage.js";
import { isLocal } from "./local_views.js";
import { refresh, showError } from "./requests.js";
import { notApplicable, openSection, prediction, VIEWS } from "./state.js";

const STORAGE_KEY = "transformer-playground-inspect";

export const SUB_VIEWS = [
  { value: "attention", label: "Attention" },
  { value: "matters", label: "What matters" },
  { value: "numbers", label: "Every number" },
];
/** The section that was open last in each sub-view. @type {Record<string, string>} */
const lastSections = {};

/**
 * Return whether the open model has a section; most models have no gates. The page ablates all
 * models that it runs.
 */
export const hasSection = (/** @type {string} */ name) =>
  (name === "ablation" && isLocal()) ||
  (prediction.value?.views?.includes(name) ?? name !== "gates");

/** Return the sections of a sub-view, in the order of main.js. @param {string} subView */
export const sectionsOf = (subView) =>
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
export function openSubView(name) {
  const sections = sectionsOf(name);
  selectView([lastSections[name], ...sections].find(hasSection) ?? sections[0]);
}
