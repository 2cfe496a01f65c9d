// Links to a view. A link names a model (watch=ID or model=NAME) and a view of it: step, attention
// type, head, curve and sequence.
import { store } from "../shared/store.js";
import { state } from "./state.js";

export const pageUrl = () => location.origin + location.pathname;

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
