// The state of the page in its address: tab, model, step and input, and what each tab adds.

/** @import { ViewState } from "./types.js" */

const MODEL_REF = /^(run|watch|checkpoint):[\w .@-]{1,200}$/;
const MAX_INPUT_LENGTH = 400;
const TAB_NAME = /^[a-z]{1,20}$/;

/** Limit the depth and size of untrusted state from a link. @param {any} value @returns {any} */
export function sanitizeLinkState(value, depth = 0) {
  if (typeof value === "string") return value.slice(0, 4000);
  if (typeof value === "boolean" || Number.isFinite(value)) return value;
  if (value === null || typeof value !== "object" || depth > 3) return null;
  if (Array.isArray(value))
    return value.slice(0, 20).map((each) => sanitizeLinkState(each, depth + 1));
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, 20)
      .map(([name, each]) => [name, sanitizeLinkState(each, depth + 1)]),
  );
}

/** Empty if malformed. @param {string | null} text @returns {Record<string, any>} */
export function parseLinkState(text) {
  try {
    return sanitizeLinkState(JSON.parse(text ?? "")) || {};
  } catch {
    return {}; // a malformed link, or the text of another kind of parameter
  }
}

/** @param {string | null} value */
const asModelRef = (value) => (MODEL_REF.test(value ?? "") ? value : null);
/** @param {string | null} value */
const asStep = (value) => (/^\d{1,9}$/.test(value ?? "") ? Number(value) : null);

/** Read `model=REF`, `model=NAME` or `watch=ID`. @param {URLSearchParams} params */
function readModel(params) {
  const model = params.get("model"),
    watch = params.get("watch");
  return (
    asModelRef(model) ??
    asModelRef(model === null ? null : "checkpoint:" + model) ??
    asModelRef(watch === null ? null : "watch:" + watch)
  );
}

/** Invalid values are null. @param {string} search the query of the address @returns {ViewState} */
export function readViewState(search) {
  const params = new URLSearchParams(search),
    tab = params.get("tab")?.toLowerCase() ?? "",
    isExercise = ["learn", "bug", "day", "class"].some((name) => params.has(name));
  return {
    tab: TAB_NAME.test(tab) ? tab : isExercise ? "learn" : null,
    model: readModel(params),
    step: asStep(params.get("step")),
    input: params.get("input")?.slice(0, MAX_INPUT_LENGTH) ?? null,
  };
}

/** Null and "" remove a parameter; the others stay. @param {string} href @param {object} params */
export function writeParams(href, params) {
  const url = new URL(href);
  url.searchParams.delete("watch");
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  return url.href;
}
