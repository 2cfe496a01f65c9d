// The model.
import { request } from "../shared/api.js";
import { el } from "../shared/dom.js";
import { saveState } from "./export.js";
import { scheduleRefresh } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";
import { VIEWS } from "./views.js";

export async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner: state.owner });
  } catch (error) {
    return;
  }
  state.runs = response.runs.filter((run) => !run.deleted);
  state.checkpoints = response.checkpoints;
  const select = $(".subject"),
    foreign =
      state.subject &&
      ![...state.runs, ...state.checkpoints].some((each) => each.subject === state.subject);
  const signature = JSON.stringify([
    state.runs.map((r) => [r.subject, r.name]),
    state.checkpoints.map((c) => c.subject),
    foreign && state.subject,
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
      foreign && group("Shared with you", [new Option("a shared run", state.subject)]),
      state.runs.length &&
        group(
          "Your runs",
          state.runs.map((r) => new Option(r.name, r.subject)),
        ),
      state.checkpoints.length &&
        group(
          "Included checkpoints",
          state.checkpoints.map((c) => new Option(c.name + ": " + c.about, c.subject)),
        ),
    ].filter(Boolean),
  );
  if (!state.subject)
    selectModel(
      state.checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (state.runs[0] || state.checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
export function selectModel(subject, step = null) {
  state.subject = subject;
  state.step = step;
  state.resultByView = {};
  state.weightSteps = [];
  $(".subject").value = subject;
  for (const spec of Object.values(VIEWS)) if (spec.reset) spec.reset();
  saveState();
  loadSteps();
  scheduleRefresh(state.view, 0);
}
// The steps of a run with stored weights.
export async function loadSteps() {
  const subject = state.subject,
    isRun = /^(run|watch):/.test(subject);
  $(".at-step").hidden = !isRun;
  if (!isRun) return;
  let response;
  try {
    response = await request("runs/poll", {
      owner: state.owner,
      subject,
      n_points: 0,
      series_id: -1,
      snapshot_version: 0,
    });
  } catch (error) {
    return;
  }
  if (subject !== state.subject) return;
  state.weightSteps = response.weight_steps || [];
  $(".at-step").hidden = state.weightSteps.length < 2;
  $(".step").max = Math.max(1, state.weightSteps.length - 1);
  $(".step").value =
    state.step === null
      ? state.weightSteps.length - 1
      : Math.max(
          0,
          state.weightSteps.findIndex((each) => each >= state.step),
        );
  renderStepLabel();
}
export function renderStepLabel() {
  $(".step-words").textContent = state.weightSteps.length
    ? (state.step === null ? "latest, " : "") +
      (state.step === null
        ? state.weightSteps[state.weightSteps.length - 1]
        : state.step
      ).toLocaleString("en")
    : "";
}
