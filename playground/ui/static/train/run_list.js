// The runs as the legend of the curves: each has a color, a name, a state and a menu.
import { Button } from "../shared/components/buttons.js";
import { formatAge, formatCount, formatInteger, formatPercent } from "../shared/format.js";
import { Sparkline } from "../shared/components/sparkline.js";
import { Menu } from "../shared/components/menu.js";
import { ACTIVE_STATUSES, store } from "../shared/store.js";
import { html, signal } from "../vendor/preact.js";
import { DamagedRecords } from "./damaged_records.js";
import { loadRuns, runAction, runAndOpen } from "./data/actions.js";
import { openModel } from "./data/model_poll.js";
import {
  MAX_OVERLAYS,
  overlayColor,
  overlays,
  removeOverlays,
  toggleOverlay,
} from "./data/overlays.js";
import { Message } from "./messages.js";
import { UploadButton } from "./saved_checkpoints.js";
import { loadSettings } from "./settings.js";
import { state } from "./state.js";
import { formatQueuePosition } from "./status.js";

/** @import { RunSummary } from "../shared/types.js" */

const STATUS_LABELS = /** @type {Record<string, string>} */ ({ waiting: "queued" });
const GROUPS = [
  { origin: "lesson", title: "Lessons" },
  { origin: "experiment", title: "Experiments" },
];
const MIN_RUNS_TO_FILTER = 6; // fewer are seen at a glance
const filterText = signal("");
/** The run whose name the user edits. */
const renamed = signal("");

/** Return the runs of the user, and groups of others. @param {RunSummary[]} runs */
export function groupRuns(runs) {
  const isOf = (/** @type {string} */ origin) => (/** @type {RunSummary} */ run) =>
    (run.origin ?? "user") === origin;
  return {
    own: runs.filter(isOf("user")),
    groups: GROUPS.map((group) => ({ ...group, runs: runs.filter(isOf(group.origin)) })).filter(
      (group) => group.runs.length,
    ),
  };
}

/** @param {RunSummary} run */
export function describeState(run) {
  if (run.queue_position) return formatQueuePosition(run.queue_position);
  return STATUS_LABELS[run.status] ?? run.status;
}

/** Describe a run in a line: task, size, step and age. @param {RunSummary} run */
export function describeRun(run, now = store.server.value.now) {
  const [layers = 0, heads = 0] = run.shape ?? [],
    step = run.step ?? 0;
  return [
    run.task,
    `${formatCount(layers, "layer")} × ${formatCount(heads, "head")}`,
    formatCount(run.parameters, "parameter"),
    "step " +
      formatInteger(step) +
      (step < (run.max_steps ?? 0) ? " of " + formatInteger(run.max_steps ?? 0) : ""),
    run.created && formatAge(now - run.created),
  ]
    .filter(Boolean)
    .join(" · ");
}

/** Return whether the name, description or state of a run have all words. */
export function matchesFilter(/** @type {RunSummary} */ run, /** @type {string} */ text) {
  const content = [run.name, describeRun(run), describeState(run)].join(" ").toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => content.includes(word));
}

/** @param {RunSummary} run */
async function deleteRun({ subject }) {
  const reply = await runAction({ action: "delete" }, subject);
  if (reply.error) return;
  removeOverlays([subject]);
  await loadRuns();
}

/** @param {RunSummary} run */
async function restoreRun({ subject }) {
  await runAction({ action: "undelete" }, subject);
  await loadRuns();
  openModel(subject);
}

/** @param {RunSummary} run @param {Record<string, any>} payload */
async function sendAction({ subject }, payload) {
  await runAction(payload, subject);
  await loadRuns();
}

const isOpenRun = (/** @type {string} */ subject) => !subject || subject === state.modelRef;

/** The color of the curves of a run while they are drawn. @param {string} subject */
function colorOf(subject) {
  const overlay = overlays.value.get(subject);
  return isOpenRun(subject) ? "var(--pg-accent)" : overlay && overlayColor(overlay.colorIndex);
}

/** The color of the curves of a run, and whether they are drawn. */
function Swatch({ subject = "", name = "the open model" }) {
  const overlay = overlays.value.get(subject),
    isOpen = isOpenRun(subject),
    isFull = !overlay && overlays.value.size >= MAX_OVERLAYS;
  return html`<label
    class="swatch"
    style=${{ "--color": colorOf(subject) ?? "transparent" }}
    data-dashed=${overlay && overlay.colorIndex % 2 ? "yes" : undefined}
  >
    <input
      type="checkbox"
      class="plot-run"
      aria-label=${`Draw the curves of ${name}`}
      title=${isOpen ? "Shown" : isFull ? "At most eight curves can be drawn" : "Draw its curves"}
      checked=${isOpen || Boolean(overlay)}
      disabled=${isOpen || isFull}
      onChange=${(event) => toggleOverlay(subject, event.currentTarget.checked)}
    />
  </label>`;
}

/** Typing replaces the name from the first key on. @param {HTMLInputElement | null} field */
const selectText = (field) => field?.select();

/** @param {{ run: RunSummary }} props */
function NameField({ run }) {
  const save = (/** @type {string} */ name) => {
    renamed.value = "";
    if (name.trim() && name !== run.name) sendAction(run, { action: "rename", name });
  };
  const onKeyDown = (event) => {
    event.stopPropagation();
    if (event.key === "Enter") save(event.currentTarget.value);
    if (event.key === "Escape") renamed.value = "";
  };
  return html`<input
    ref=${selectText}
    class="renaming"
    maxlength="80"
    aria-label="New name"
    defaultValue=${run.name}
    onKeyDown=${onKeyDown}
    onBlur=${(event) => renamed.value && save(event.currentTarget.value)}
  />`;
}

/** @param {{ run: RunSummary }} props */
function RunMenu({ run }) {
  const { subject, status } = run;
  const item = (/** @type {string} */ name, /** @type {string} */ label, onClick, title = "") =>
    html`<button type="button" data-action=${name} title=${title} onClick=${onClick}>
      ${label}
    </button>`;
  const send = (/** @type {string} */ name) => () => sendAction(run, { action: name });
  return html`<${Menu} label=${`Actions of ${run.name}`}>
    <p class="pg-hint">${describeRun(run)}</p>
    ${["paused", "stopped", "failed"].includes(status) && item("resume", "Resume", send("resume"))}
    ${ACTIVE_STATUSES.includes(status) && item("stop", "Stop", send("stop"))}
    ${item(
      "rerun",
      "Run again exactly",
      () => runAndOpen({ action: "rerun" }, subject),
      "Same settings, same seed, same changes at the same steps",
    )}
    ${item("use", "Use its settings", () => loadSettings(subject), "Copies them into the form")}
    ${item("rename", "Rename", () => (renamed.value = subject))}
    ${item("delete", "Delete", () => deleteRun(run))}
  <//>`;
}

/** @param {{ run: RunSummary }} props */
function RunRow({ run }) {
  const isOpen = run.subject === state.modelRef,
    color = colorOf(run.subject) ?? "var(--pg-quiet)";
  return html`<li class=${isOpen ? "run open" : "run"} data-subject=${run.subject}>
    <${Swatch} subject=${run.subject} name=${run.name} />
    ${
      renamed.value === run.subject
        ? html`<${NameField} run=${run} />`
        : html`<button
            type="button"
            class="name pg-clip"
            title=${run.name}
            aria-current=${isOpen ? "true" : undefined}
            onClick=${() => openModel(run.subject)}
          >
            ${run.name}
          </button>`
    }
    ${run.curve.length > 1 && html`<${Sparkline} curves=${[run.curve]} color=${color} />`}
    <span
      class="best"
      title=${run.best === null ? "" : "of " + formatCount(run.eval_size ?? 0, "held-out sequence")}
      >${run.best === null ? "–" : formatPercent(run.best)}</span
    >
    <span class="state" data-status=${run.status}>${describeState(run)}</span>
    <${RunMenu} run=${run} />
  </li>`;
}

/** @param {RunSummary[]} runs */
const renderRows = (runs) =>
  html`<ul>
    ${runs.map((run) => html`<${RunRow} key=${run.subject} run=${run} />`)}
  </ul>`;

/** The runs of lessons or experiments; folded, unless one of them is drawn or searched. */
function RunGroup({ title, runs }) {
  const isDrawn = runs.some(
    (/** @type {RunSummary} */ { subject }) =>
      subject === state.modelRef || overlays.value.has(subject),
  );
  return html`<details class="run-group" open=${isDrawn || Boolean(filterText.value)}>
    <summary class="pg-quiet">${title} (${runs.length})</summary>
    ${renderRows(runs)}
  </details>`;
}

/** A model that is open without being in the list: a checkpoint, or a shared run. */
function OpenModel() {
  return html`<ul>
    <li class="open-model">
      <${Swatch} /><span class="open-name pg-clip"
        >${state.lastResponse.name || "the open model"}</span
      >
    </li>
  </ul>`;
}

function DeletedRuns() {
  const runs = store.deletedRuns.value;
  return html`<p class="undo pg-hint" role="status" hidden=${!runs.length}>
    Deleted; removed permanently after ten minutes:${" "}
    ${runs.map(
      (run) =>
        html`<${Button} key=${run.subject} class="small" onClick=${() => restoreRun(run)}>
          Undo “${run.name}”
        <//>`,
    )}
  </p>`;
}

const FilterField = () =>
  html`<input
    type="search"
    class="run-filter"
    placeholder="Filter runs"
    aria-label="Filter runs by name, task, size or state"
    value=${filterText.value}
    onInput=${(event) => (filterText.value = event.currentTarget.value)}
  />`;

export function RunList() {
  const runs = store.runs.value,
    { own, groups } = groupRuns(runs.filter((run) => matchesFilter(run, filterText.value))),
    hasFilter = Boolean(filterText.value) || runs.length >= MIN_RUNS_TO_FILTER,
    isListed = runs.some((run) => run.subject === state.modelRef),
    { note, storage_message: storageMessage } = store.server.value;
  return html`<section class="runs" aria-label="Your runs" data-part="curves">
    <div class="pg-row bar">
      <h3>Runs</h3>
      <${UploadButton} />
    </div>
    <${Message} name="runs" class="runs-note" />
    <p class="home-note pg-hint" hidden=${!note}>${note}</p>
    <p class="storage-note pg-hint" hidden=${!storageMessage}>${storageMessage}</p>
    <${DeletedRuns} />
    ${hasFilter && html`<${FilterField} />`}
    <div class="run-rows">
      ${!isListed && state.modelRef && html`<${OpenModel} />`}
      ${!runs.length && !state.modelRef && html`<p class="no-runs pg-hint">No runs yet.</p>`}
      ${
        filterText.value &&
        own.length + groups.length === 0 &&
        html`<p class="no-runs pg-hint">No run matches the filter.</p>`
      }
      ${renderRows(own)}
      ${groups.map((group) => html`<${RunGroup} key=${group.origin} ...${group} />`)}
      <${DamagedRecords} />
    </div>
  </section>`;
}
