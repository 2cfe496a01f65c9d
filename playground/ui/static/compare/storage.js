import { copyText, createStorage } from "../shared/common.js";
import { buildLink, readLinkState } from "../shared/links.js";
import { state } from "./state.js";
import { $ } from "./view.js";
import { VIEWS } from "./views.js";

export const { storedState, saveLocal, loadLocal } = createStorage(
  "transformer-playground-compare",
);
// A link restores the fields of a view. Stored results of other inputs are discarded.
const LINK_FIELDS = /^(table|attention|finetune|free-[a-z]+|meaning-part)$/;
function applyLinkState() {
  const link = readLinkState("compare"),
    fields = link.fields && typeof link.fields === "object" ? link.fields : {};
  for (const [name, value] of Object.entries(fields)) {
    if (!LINK_FIELDS.test(name)) continue;
    storedState[name] = value;
    if (name.startsWith("free-")) delete storedState["job-" + name];
    if (name === "attention") for (const i of [0, 1]) delete storedState["job-attention-" + i];
  }
  for (const name of ["view", "subject"])
    if (typeof link[name] === "string") storedState[name] = link[name];
}
function buildViewLink() {
  const spec = VIEWS[state.view],
    names = spec.fields ? spec.fields() : [],
    mine = state.subject.startsWith("checkpoint:") ? { subject: state.subject } : {};
  return buildLink("compare", {
    view: state.view,
    ...mine,
    fields: Object.fromEntries(names.map((name) => [name, loadLocal(name)])),
  });
}

export function initStorage() {
  applyLinkState();
  $(".link").addEventListener("click", () => copyText(buildViewLink(), $(".link"), "The link"));
}
