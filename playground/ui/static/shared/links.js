// The state of the page in its address: tab, model, step and input.

/** @import { ViewState } from "./types.js" */

const MODEL_REF = /^(run|watch|checkpoint):[\w .@-]{1,200}$/;
const MAX_INPUT_LENGTH = 400;
// The tabs whose links have a parameter of the same name, and Find the bug.
const TAB_PARAMS = ["inspect", "compare", "lab", "hub", "learn"];
const TAB_NAME = /^[a-z]{1,20}$/;

/**
 * Limit the depth and size of untrusted state from a link.
 * @param {any} value
 * @returns {any}
 */
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

/** Return the JSON of a link; empty if it is malformed. @param {string | null} text */
export function parseLinkState(text) {
  try {
    return sanitizeLinkState(JSON.parse(text ?? "")) || {};
  } catch {
    return {}; // a malformed link, or the text of another kind of parameter
  }
}

/** @param {unknown} value */
const asModelRef = (value) => (typeof value === "string" && MODEL_REF.test(value) ? value : null);
/** @param {unknown} value */
function asStep(value) {
  const step = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  return typeof step === "number" && Number.isInteger(step) && step >= 0 ? step : null;
}
/** @param {unknown} value */
const asInput = (value) => (typeof value === "string" ? value.slice(0, MAX_INPUT_LENGTH) : null);

/**
 * Return the model of a link: `model=REF`, `model=NAME`, `watch=ID`, or the subject of a tab.
 * @param {URLSearchParams} params
 * @param {Record<string, any>} content the JSON of a link to a tab
 */
function readModel(params, content) {
  const model = params.get("model"),
    watch = params.get("watch");
  return (
    asModelRef(model) ??
    asModelRef(model === null ? null : "checkpoint:" + model) ??
    asModelRef(watch === null ? null : "watch:" + watch) ??
    asModelRef(content.subject)
  );
}

/**
 * Return what an address selects. Invalid values are null.
 * @param {string} search the query of the address
 * @returns {ViewState}
 */
export function readViewState(search) {
  const params = new URLSearchParams(search),
    linkedTab = TAB_PARAMS.find((name) => params.has(name)) ?? (params.has("bug") ? "learn" : null),
    content = parseLinkState(params.get(linkedTab ?? "")),
    tab = params.get("tab")?.toLowerCase() ?? null,
    text = params.has("learn") ? null : params.get("text"); // a lesson has a sequence of its own
  return {
    tab: tab !== null && TAB_NAME.test(tab) ? tab : linkedTab,
    model: readModel(params, content),
    step: asStep(params.get("step")) ?? asStep(content.step),
    input: asInput(params.get("input") ?? text) ?? asInput(content.text),
  };
}

/**
 * Return an address with another state. Other parameters stay: a tab takes its own when it opens.
 * @param {string} href
 * @param {ViewState} state
 */
export function writeViewState(href, state) {
  const url = new URL(href);
  url.searchParams.delete("watch");
  if (!url.searchParams.has("learn")) url.searchParams.delete("text");
  for (const [name, value] of Object.entries(state)) {
    if (value === null || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  return url.href;
}

/**
 * Return a link that opens this page with `content` in the query parameter `name`.
 * @param {string} name
 * @param {unknown} content
 * @param {{ origin: string, pathname: string }} page
 */
export function buildLink(name, content, page = location) {
  const text = typeof content === "string" ? content : JSON.stringify(content);
  return `${page.origin}${page.pathname}?${name}=${encodeURIComponent(text)}`;
}

/**
 * Return a query parameter and remove it from the address, so that a reload does not apply it
 * again.
 * @param {string} name
 */
export function takeQueryParam(name) {
  const address = new URL(location.href),
    text = address.searchParams.get(name);
  if (text === null) return null;
  address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
  return text;
}

/**
 * Return the JSON of a query parameter once; empty if it is malformed.
 * @param {string} name
 */
export const readLinkState = (name) => parseLinkState(takeQueryParam(name));
