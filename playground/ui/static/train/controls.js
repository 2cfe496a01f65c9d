// Controls of the open run.
import { setMessage } from "../shared/common.js";
import { SPEED_TITLE } from "../shared/strings.js";
import { runAction } from "./runs.js";
import { state } from "./state.js";
import { ACTIVE_STATUSES } from "./status.js";
import { $, root } from "./view.js";

const LIVE_SETTINGS = { rate: "learning_rate", target: "max_steps" };
export function renderControls() {
  const own = state.lastResponse.is_owner && state.modelRef.startsWith("run:"),
    set = (box, value) => {
      if (document.activeElement !== box && box.value !== String(value)) box.value = value;
    };
  for (const [name, setting] of Object.entries(LIVE_SETTINGS)) {
    const box = $("." + name);
    set(box, state.lastResponse[setting] ?? "");
    box.disabled = !own;
    box.parentElement.hidden = !own;
  }
  if (own && document.activeElement !== $(".speed") && ACTIVE_STATUSES.includes(state.status))
    set($(".speed"), state.lastResponse.speed || 0);
  $(".resume-here").hidden = !own || !["stopped", "failed", "done"].includes(state.status);
  $(".resume-here").textContent = state.status === "done" ? "Continue training" : "Resume";
  $(".speed").title = SPEED_TITLE;
  $(".keep").hidden =
    !own || !["training", "paused"].includes(state.status) || !state.lastResponse.has_worker;
  $(".share").disabled = !state.modelRef || state.status === "not-found";
  $(".saved").hidden = !own;
}

export async function sendCommand(command) {
  if (!state.lastResponse.is_owner) return;
  const words = { pause: "Pausing", resume: "Resuming", stop: "Stopping and saving" }[command];
  if (words && ACTIVE_STATUSES.includes(state.status)) $(".status-text").textContent = words;
  await runAction({ action: command });
}

export function initControls() {
  for (const [name, setting] of Object.entries(LIVE_SETTINGS))
    $("." + name).addEventListener("change", async (event) => {
      const box = event.target,
        reply = box.value.trim()
          ? await runAction({ action: "change", setting, value: Number(box.value) })
          : {};
      if (reply.error || !box.value.trim()) box.value = state.lastResponse[setting];
    });
  $(".speed").addEventListener("change", (event) => {
    if (state.lastResponse.is_owner && ACTIVE_STATUSES.includes(state.status))
      runAction({ action: "change", setting: "speed", value: Number(event.target.value) });
  });
  $(".resume-here").addEventListener("click", () =>
    runAction({ action: state.status === "done" ? "extend" : "resume" }),
  );
  $(".keep").addEventListener("click", async () => {
    const reply = await runAction({ action: "keep" });
    if (!reply.error)
      setMessage(
        $(".hand-note"),
        state.status === "paused"
          ? "Checkpoint of step " + state.lastResponse.step + " kept."
          : "Saving a checkpoint of this step; it will appear under Checkpoints of this run.",
      );
  });
  root.addEventListener("command", (event) => sendCommand(event.detail));
}
