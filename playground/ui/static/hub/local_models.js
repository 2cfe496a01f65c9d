import { request } from "../shared/api.js";
import { navigate } from "../shared/common.js";
import { formatPercent } from "../shared/format.js";
import { setVisible } from "../shared/dom.js";
import { clearPlan, renderAutoPublish, updateAutoPublish } from "./publishing.js";
import { state } from "./state.js";
import { $ } from "./view.js";

let checkpoints = [];
let suggestedRepo = "",
  suggestedFor = "";
const ACTIVE_STATUSES = ["waiting", "starting", "training", "paused", "stopping"];

// ---------------------------------------------------------------- models on this machine
export async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner: state.owner });
  } catch (error) {
    return;
  }
  state.runs = response.runs.filter((run) => !run.deleted);
  checkpoints = response.checkpoints;
  renderModelSelect();
  renderLocalModels();
}
export function renderModelSelect() {
  const select = $(".model"),
    before = select.value;
  const options = [
    ...state.runs.map((run) => [
      run.subject,
      run.name + (ACTIVE_STATUSES.includes(run.status) ? " · " + run.status : ""),
    ]),
    ...checkpoints.map((c) => [c.subject, c.name]),
  ];
  const signature = JSON.stringify(options);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    let onShow = "";
    try {
      onShow = localStorage.getItem("transformer-playground-subject") || "";
    } catch (error) {
      /* the browser denies storage */
    }
    if (options.some(([value]) => value === before)) select.value = before;
    else {
      if (options.some(([value]) => value === onShow)) select.value = onShow;
      loadCheckpoints();
    }
  }
  const can = state.session.signed_in || $(".token").value.trim();
  $(".preview-push").disabled = !can || state.isPublishing || !options.length;
  const why = { oauth: "Sign in above first", none: "This Space cannot publish" }[
    state.session.way
  ];
  $(".preview-push").title = can
    ? "Shows all changes; writes nothing"
    : why || "Enter a token above first";
  const run = state.runs.find((each) => each.subject === select.value);
  setVisible(
    $(".keep"),
    Boolean(state.autoPublish) || (run && ACTIVE_STATUSES.includes(run.status)),
  );
  renderAutoPublish();
}
export async function loadCheckpoints(reset = true) {
  const subject = $(".model").value,
    select = $(".which");
  if (reset) {
    clearPlan();
    suggestRepo();
  }
  let response;
  try {
    response = await request("runs/details", { owner: state.owner, subject });
  } catch (error) {
    return;
  }
  const signature = subject + JSON.stringify((response.checkpoints || []).map((c) => c.name));
  if (subject !== $(".model").value || signature === select.dataset.signature) return;
  select.dataset.signature = signature;
  const label = (c, at) =>
    (at ? "step " : "latest, step ") +
    c.step.toLocaleString("en") +
    (c.exact_match === null ? "" : ", exact match " + formatPercent(c.exact_match));
  const before = select.value,
    options = (response.checkpoints || []).map((c, at) => new Option(label(c, at), c.name));
  const none = subject.startsWith("run:")
    ? "none yet: pause the run or wait"
    : "the only checkpoint";
  select.replaceChildren(...(options.length ? options : [new Option(none, "")]));
  if (options.length) select.options[0].value = "";
  if (before && options.some((option) => option.value === before)) select.value = before;
}
export function suggestRepo() {
  const box = $(".repo");
  const chosenNow = $(".model").value;
  // The user entered this name for this model.
  if (box.value && box.value !== suggestedRepo && chosenNow === suggestedFor) return;
  const chosen = [...state.runs, ...checkpoints].find((each) => each.subject === $(".model").value);
  if (!chosen) return;
  const title = chosen.task + " " + Math.round(chosen.parameters / 1000) + "k";
  const name = title
    .replace(/1–/, "")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();
  const user = (state.account && state.account.name) || state.session.name || "";
  box.value = suggestedRepo = user ? user + "/" + name : "";
  suggestedFor = chosenNow;
  box.placeholder = (user || "you") + "/" + name;
}
function renderLocalModels() {
  const signature = JSON.stringify(
      [...state.runs, ...checkpoints].map((r) => [r.subject, r.name, r.task, r.parameters, r.best]),
    ),
    body = $(".here tbody");
  if (body.dataset.signature === signature) return; // keeps the focus of a button
  body.dataset.signature = signature;
  $(".here tbody").replaceChildren(
    ...[...state.runs, ...checkpoints].map((r) => {
      const row = createTableRow([
        [r.name, "name"],
        [r.task, "tight wide"],
        [r.parameters.toLocaleString("en"), "number wide"],
        [r.best === null ? "" : formatPercent(r.best), "number tight"],
      ]);
      addActionButton(row, "Open", () => openInTrain(r.subject));
      return row;
    }),
  );
}
export const openInTrain = (subject) => navigate("Train", subject);
export function createTableRow(cells) {
  const row = document.createElement("tr");
  for (const [text, kind] of cells) {
    const cell = document.createElement("td");
    cell.textContent = text;
    if (kind) cell.className = kind;
    row.append(cell);
  }
  return row;
}
export function addActionButton(row, text, act) {
  const cell = document.createElement("td"),
    button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = text;
  button.addEventListener("click", act);
  cell.className = "tight";
  cell.append(button);
  row.append(cell);
}

export function initLocalModels() {
  $(".model").addEventListener("change", () => {
    if ($(".repo").value.endsWith("/")) $(".repo").value = "";
    loadCheckpoints();
    renderModelSelect();
    updateAutoPublish("status");
  });
}
