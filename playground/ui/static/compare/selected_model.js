import { request } from "../shared/api.js";
import { el } from "../shared/dom.js";
import { state } from "./state.js";
import { saveLocal } from "./storage.js";
import { $, onResizeOrThemeChange } from "./view.js";
import { showView, VIEWS } from "./views.js";

let runs = [],
  checkpoints = [];

export const currentModel = () =>
  [...runs, ...checkpoints].find((each) => each.subject === state.subject) || null;
export async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner: state.owner });
  } catch (error) {
    return;
  }
  runs = response.runs.filter((run) => !run.deleted);
  checkpoints = response.checkpoints;
  const select = $(".subject"),
    signature = JSON.stringify([
      runs.map((r) => [r.subject, r.name]),
      checkpoints.map((c) => c.subject),
    ]);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  const group = (label, options) => {
    const box = el("optgroup", { label });
    box.append(...options);
    return box;
  };
  select.replaceChildren(
    ...[
      runs.length &&
        group(
          "Your runs",
          runs.map((r) => new Option(r.name, r.subject)),
        ),
      checkpoints.length &&
        group(
          "Included checkpoints",
          checkpoints.map((c) => new Option(c.name + ": " + c.about, c.subject)),
        ),
    ].filter(Boolean),
  );
  if (!currentModel())
    selectModel(
      checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (runs[0] || checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
export function selectModel(subject) {
  state.subject = subject;
  $(".subject").value = subject;
  saveLocal("subject", subject);
  for (const spec of Object.values(VIEWS)) if (spec.chosen) spec.chosen();
}

export function initSelectedModel() {
  $(".subject").addEventListener("change", (event) => selectModel(event.target.value));
  onResizeOrThemeChange(showView);
}
