// The line of the open model: status, progress, and the controls of a run.
import { Button } from "../shared/components/buttons.js";
import { Menu } from "../shared/components/menu.js";
import { formatCount } from "../shared/format.js";
import { ACTIVE_STATUSES } from "../shared/store.js";
import { PEAK_LEARNING_RATE, RETRYING, SPEED_TITLE } from "../shared/strings.js";
import { html, useEffect, useRef } from "../vendor/preact.js";
import { runAction } from "./data/actions.js";
import { Message, setMessage } from "./messages.js";
import { state } from "./state.js";
import { formatStatus } from "./status.js";

const SPEEDS = [0, 20, 5, 2, 1]; // steps per second; 0 for full speed
const formatSpeed = (speed) => (speed ? formatCount(speed, "step") + "/s" : "full");
const isOwnRun = () => state.lastResponse.is_owner && state.modelRef.startsWith("run:");

function Status() {
  const { step = 0, max_steps: maxSteps } = state.lastResponse,
    text = state.statusNote || formatStatus();
  return html`<div class="status-box">
    <p class=${state.statusNote === RETRYING ? "status pg-error" : "status"} title=${text}>
      <span class="dot" aria-hidden="true"></span><span class="status-text">${text}</span>
    </p>
    <progress aria-hidden="true" max=${maxSteps || 1} value=${maxSteps ? step : 0}></progress>
  </div>`;
}

/** Screen readers announce the status of the run and what it learned, but no changing number. */
function Announcement() {
  const { modelRef, status, lastResponse, learnedStep: step } = state,
    announced = useRef({ key: "", text: "", step }),
    key = [modelRef, status, lastResponse.message, step].join("/"),
    isNews = step !== null && step !== announced.current.step;
  if (key !== announced.current.key)
    announced.current = { key, text: isNews ? `Learned at step ${step}` : formatStatus(), step };
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
  const onChange = async (event) => {
    const text = event.currentTarget.value.trim();
    const reply = text && (await runAction({ action: "change", setting, value: Number(text) }));
    if (!text || reply.error) reset();
  };
  return html`<label class="pg-quiet" title=${title}>
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
    <${Menu}
      label="Settings that can change during training"
      text="Adjust"
      class="as-button"
      isForm
    >
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
      <${Button}
        class="save-checkpoint"
        title="Saves a checkpoint of this step until you delete it"
        hidden=${!canSave}
        onClick=${saveCheckpoint}
      >
        Save checkpoint
      <//>
    <//>
  </div>`;
}

function ResumeButton() {
  const isDone = state.status === "done",
    canResume = isOwnRun() && ["stopped", "failed", "done"].includes(state.status);
  return html`<${Button}
    class="resume-here"
    hidden=${!canResume}
    onClick=${() => runAction({ action: isDone ? "extend" : "resume" })}
  >
    ${isDone ? "Continue training" : "Resume"}
  <//>`;
}

/** The speed of the open run. The field keeps what the user selects. */
function SpeedSelect() {
  const box = useRef(/** @type {HTMLSelectElement | null} */ (null)),
    { speed, is_owner: isOwner } = state.lastResponse,
    isActive = ACTIVE_STATUSES.includes(state.status);
  useEffect(() => {
    if (isActive && isOwner && document.activeElement !== box.current)
      state.speed = String(speed || 0);
  }, [state.lastResponse]);
  const onChange = (event) => {
    state.speed = event.currentTarget.value;
    if (isActive && isOwnRun())
      runAction({ action: "change", setting: "speed", value: Number(state.speed) });
  };
  return html`<label class="pg-quiet speed-field" title=${SPEED_TITLE}>
    Speed
    <select ref=${box} class="speed" value=${state.speed} onChange=${onChange}>
      ${SPEEDS.map((each) => html`<option value=${each}>${formatSpeed(each)}</option>`)}
    </select>
  </label>`;
}

/** @param {{ children?: any }} props */
export function TopBar({ children }) {
  return html`<div class="top">
      <${Status} />${children}<${ResumeButton} /><${RunSettings} /><${SpeedSelect} />
      <${Message} name="run" class="pg-popup hand-note" />
    </div>
    <${Announcement} />`;
}

/** The status that the buttons show: that of a run of one's own, at once after a click. */
export const buttonStatus = () =>
  state.announcedStatus ||
  (state.lastResponse.is_owner || !ACTIVE_STATUSES.includes(state.status)
    ? state.status
    : "watched");
