// The line of the open model: status, progress, and the controls of a run.
import { Menu } from "../shared/components/menu.js";
import { ACTIVE_STATUSES } from "../shared/store.js";
import { PEAK_LEARNING_RATE, SPEED_TITLE } from "../shared/strings.js";
import { html, useEffect, useRef } from "../vendor/preact.js";
import { openShareDialog } from "./dialogs.js";
import { Message, setMessage } from "./messages.js";
import { announce } from "./polling.js";
import { runAction } from "./runs.js";
import { openHelp } from "./shortcuts.js";
import { state } from "./state.js";
import { formatStatus } from "./status.js";
import { root } from "./view.js";

const SPEEDS = [
  ["0", "full"],
  ["20", "20 steps/s"],
  ["5", "5 steps/s"],
  ["2", "2 steps/s"],
  ["1", "1 step/s"],
];
/** By command: the status that it brings, and the text until then. */
const COMMAND_EFFECTS = /** @type {Record<string, [string, string]>} */ ({
  pause: ["paused", "Pausing"],
  resume: ["training", "Resuming"],
  step: ["paused", "Training one step"],
  stop: ["stopping", "Stopping and saving"],
});
const isOwnRun = () => state.lastResponse.is_owner && state.modelRef.startsWith("run:");

/** @param {string} command */
export async function sendCommand(command) {
  if (!state.lastResponse.is_owner || state.announcedStatus === "starting") return;
  if (ACTIVE_STATUSES.includes(state.status)) announce(...COMMAND_EFFECTS[command]);
  const { error } = await runAction({ action: command });
  if (error) announce("");
}

function Status() {
  const { step = 0, max_steps: maxSteps } = state.lastResponse,
    text = state.statusNote || formatStatus();
  return html`<div class="status-box">
    <p class="status" title=${text}>
      <span class="dot" aria-hidden="true"></span><span class="status-text">${text}</span>
    </p>
    <div class="progress" aria-hidden="true">
      <i style=${{ width: maxSteps ? Math.min(100, (100 * step) / maxSteps) + "%" : "0" }}></i>
    </div>
  </div>`;
}

/** Screen readers announce the status of the run, but not its changing numbers. */
function Announcement() {
  const announced = useRef({ key: "", text: "" }),
    key = [state.modelRef, state.status, state.lastResponse.message].join("/");
  if (key !== announced.current.key) announced.current = { key, text: formatStatus() };
  return html`<p class="pg-visually-hidden run-announcement" role="status">
    ${announced.current.text}
  </p>`;
}

/** A setting that can change during training. The field keeps what the user types. */
function LiveSetting({ name, setting, label, title, step, min }) {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null)),
    value = String(state.lastResponse[setting] ?? "");
  const reset = () => {
    if (box.current) box.current.value = value;
  };
  useEffect(() => {
    if (document.activeElement !== box.current) reset();
  }, [value]);
  const onChange = async (/** @type {any} */ event) => {
    const text = event.currentTarget.value.trim();
    const reply = text && (await runAction({ action: "change", setting, value: Number(text) }));
    if (!text || reply.error) reset();
  };
  return html`<label title=${title}>
    ${label}
    <input
      ref=${box}
      class=${name}
      type="number"
      step=${step}
      min=${min}
      disabled=${!isOwnRun()}
      onChange=${onChange}
    />
  </label>`;
}

async function saveCheckpoint() {
  const reply = await runAction({ action: "save" });
  if (reply.error) return;
  const text =
    state.status === "paused"
      ? `Checkpoint of step ${state.lastResponse.step} saved.`
      : "Saving a checkpoint of this step; it will appear under Checkpoints of this run.";
  setMessage("run", text);
}

function RunSettings() {
  const { status, lastResponse } = state,
    canSave = ["training", "paused"].includes(status) && lastResponse.has_worker;
  return html`<div class="manual-controls" hidden=${!isOwnRun()}>
    <${Menu} label="Settings that can change during training" text="Adjust" isForm>
      <${LiveSetting}
        name="rate"
        setting="learning_rate"
        label=${PEAK_LEARNING_RATE}
        title="Applies from the next step. A schedule scales this rate."
        step="any"
        min="0"
      />
      <${LiveSetting}
        name="target"
        setting="max_steps"
        label="Steps"
        title="Last training step of this run"
        step="1"
        min="1"
      />
      <button
        type="button"
        class="pg-button save-checkpoint"
        title="Saves a checkpoint of this step until you delete it"
        hidden=${!canSave}
        onClick=${saveCheckpoint}
      >
        Save checkpoint
      </button>
    <//>
  </div>`;
}

function ResumeButton() {
  const isDone = state.status === "done",
    canResume = isOwnRun() && ["stopped", "failed", "done"].includes(state.status);
  return html`<button
    type="button"
    class="pg-button resume-here"
    hidden=${!canResume}
    onClick=${() => runAction({ action: isDone ? "extend" : "resume" })}
  >
    ${isDone ? "Continue training" : "Resume"}
  </button>`;
}

function SpeedSelect() {
  const onChange = (/** @type {any} */ event) => {
    state.speed = event.currentTarget.value;
    if (isOwnRun() && ACTIVE_STATUSES.includes(state.status))
      runAction({ action: "change", setting: "speed", value: Number(state.speed) });
  };
  return html`<label class="speed-field" title=${SPEED_TITLE}>
    Speed
    <select class="speed" value=${state.speed} onChange=${onChange}>
      ${SPEEDS.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}

export function TopBar() {
  return html`<div class="top">
      <${Status} /><${ResumeButton} /><${RunSettings} /><${SpeedSelect} />
      <button
        type="button"
        class="pg-button share"
        title="Share a link to this run, its settings or a report"
        disabled=${!state.modelRef || state.status === "not-found"}
        onClick=${openShareDialog}
      >
        Share
      </button>
      <button
        type="button"
        class="pg-button show-keys"
        title="Keyboard"
        aria-label="Keyboard"
        onClick=${openHelp}
      >
        ?
      </button>
      <${Message} name="run" class="hand-note" />
    </div>
    <${Announcement} />`;
}

/** Show the status in the attributes that style sheets use. */
export function updatePageStatus() {
  root.dataset.status = state.status;
  root.dataset.own = state.lastResponse.is_owner ? "yes" : "no";
  root.classList.toggle("old", state.isOld);
  root.classList.toggle("without-figures", state.hasNoFigures);
}

/** The status that the buttons show: that of a run of one's own, at once after a click. */
export const buttonStatus = () =>
  state.announcedStatus ||
  (state.lastResponse.is_owner || !ACTIVE_STATUSES.includes(state.status)
    ? state.status
    : "watched");
