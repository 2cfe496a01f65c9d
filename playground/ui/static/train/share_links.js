// Links to a view. A link names a model (watch=ID or model=NAME) and a view of it: step, attention
// type, head, curve and sequence.
import { takeQueryParam } from "../shared/links.js";
import { store } from "../shared/store.js";
import { scheduleRender } from "./rendering.js";
import { METRICS, selectKind, state } from "./state.js";

export const embeddedView = document.documentElement.dataset.embed || "";
export const pageUrl = () => location.origin + location.pathname;

const linkParams = new URLSearchParams(location.search);
if (!embeddedView) for (const name of ["kind", "head", "curve", "log"]) takeQueryParam(name);
// The link's view, until the model is drawn.
let pendingLinkState = ["watch", "model"].some((name) => linkParams.has(name)) ? linkParams : null;

export function applyLinkState() {
  if (!pendingLinkState || !state.displayedSnapshot || !/^(watch|checkpoint):/.test(state.modelRef))
    return;
  const link = pendingLinkState,
    kind = link.get("kind") ?? "",
    curve = link.get("curve") ?? "";
  pendingLinkState = null;
  if (Object.hasOwn(state.probeInfo.axes, kind)) selectKind(kind);
  if (Object.hasOwn(METRICS, curve)) state.selectedMetric = curve;
  if (link.get("log") === "no") state.isLog = false;
  scheduleRender();
}

/**
 * Return the head of the link while its model is displayed; null if the model lacks this head.
 * @param {any[][]} layers
 * @returns {number[] | null}
 */
export function linkedHead(layers) {
  const match =
    state.modelRef === state.linkedModel &&
    /^(\d{1,2})\.(\d{1,2})$/.exec(linkParams.get("head") || "");
  if (!match) return null;
  const [layer, head] = [Number(match[1]) - 1, Number(match[2]) - 1];
  return layers[layer]?.[head] ? [layer, head] : null;
}

/** Return the query of a link to the current view. @param {Record<string, string>} model */
export function buildLinkQuery(model) {
  const query = new URLSearchParams(),
    [layer, head] = state.selectedHead,
    layers = state.displayedSnapshot?.attention[state.selectedKind];
  if (state.viewedStep !== null) query.set("step", String(state.viewedStep));
  if (state.selectedKind !== "cross") query.set("kind", state.selectedKind);
  if (layers && (layer !== layers.length - 1 || head))
    query.set("head", `${layer + 1}.${head + 1}`);
  if (state.selectedMetric !== "loss") query.set("curve", state.selectedMetric);
  if (!state.isLog) query.set("log", "no");
  if (store.input.value) query.set("text", store.input.value);
  for (const [name, value] of Object.entries(model)) query.set(name, value);
  return query.toString();
}
