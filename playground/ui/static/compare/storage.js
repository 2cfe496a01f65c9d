import { copyText, createStorage } from "../shared/common.js";
import { buildLink, readLinkState } from "../shared/links.js";
import { state } from "./state.js";
import { $ } from "./view.js";
import { VIEWS } from "./views.js";

export const { storedState, saveLocal, loadLocal } = createStorage(
  "transformer-playground-compare",
);
// A link restores the form fields of a view. Delete stored jobs: they belong to other inputs.
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
  const view = VIEWS[state.view],
    fieldNames = view.fields ? view.fields() : [],
    subjectField = state.subject.startsWith("checkpoint:") ? { subject: state.subject } : {};
  return buildLink("compare", {
    view: state.view,
    ...subjectField,
    fields: Object.fromEntries(fieldNames.map((name) => [name, loadLocal(name)])),
  });
}

export function initStorage() {
  applyLinkState();
  $(".link").addEventListener("click", () => copyText(buildViewLink(), $(".link"), "The link"));
}
