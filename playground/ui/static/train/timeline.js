// The slider of the recorded steps, their replay, and the button that branches off a run.
import { Button } from "../shared/components/buttons.js";
import { formatCount, formatInteger } from "../shared/format.js";
import { StepSlider } from "../shared/components/step_slider.js";
import { store } from "../shared/store.js";
import { PLAY_LABEL } from "../shared/strings.js";
import { html } from "../vendor/preact.js";
import { axisMaxStep } from "./curves.js";
import { runAndOpen } from "./data/actions.js";
import { MAX_OVERLAYS, overlays, toggleOverlay } from "./data/overlays.js";
import { hasHistory, showLatest, showStep, startPlayback, stopPlayback } from "./data/snapshots.js";
import { Message } from "./messages.js";
import { state } from "./state.js";

const BRANCH_STATUSES = ["paused", "done", "stopped", "failed"];

/** @param {number | null} step */
function onStep(step) {
  stopPlayback();
  if (step === null) showLatest();
  else showStep(step);
}

/** Start a run from the displayed step, and draw the curves of this one over its own. */
async function branch() {
  const from = state.modelRef,
    step = state.viewedStep ?? state.lastResponse.step,
    reply = await runAndOpen({ action: "branch", step });
  if (reply.subject && overlays.value.size < MAX_OVERLAYS) toggleOverlay(from, true);
}

function describePosition() {
  if (state.viewedStep !== null) return `Viewing step ${formatInteger(state.viewedStep)}`;
  if (hasHistory()) return formatCount(store.weightSteps.value.length, "snapshot");
  return state.status === "checkpoint" ? "No history for this checkpoint" : "";
}

export function Timeline() {
  const { lastResponse, viewedStep } = state,
    isPlaying = store.isPlaying.value,
    isOff = !hasHistory(),
    step = viewedStep ?? lastResponse.step ?? 0,
    canBranch =
      lastResponse.is_owner &&
      state.pointCount &&
      (viewedStep !== null || BRANCH_STATUSES.includes(state.status));
  return html`<div class=${isOff ? "rewind off" : "rewind"} data-part="curves">
    <button
      type="button"
      class="play"
      aria-label=${isPlaying ? "Pause the replay" : PLAY_LABEL}
      title="Play the run from its start, or from here"
      disabled=${isOff}
      onClick=${() => (isPlaying ? stopPlayback() : startPlayback())}
    >
      ${isPlaying ? "❚❚" : "▶"}
    </button>
    <${StepSlider}
      class="scrub"
      steps=${store.weightSteps.value}
      step=${viewedStep}
      onStep=${onStep}
      min=${0}
      max=${axisMaxStep.value}
      latest=${step}
      aria-label="Shown step"
      aria-valuetext=${"step " + step}
      disabled=${isOff}
    />
    <span class="viewing pg-quiet">${describePosition()}</span>
    <${Button} class="small now" hidden=${viewedStep === null} onClick=${showLatest}>
      Go to latest
    <//>
    <${Button} class="small branch" hidden=${!canBranch} onClick=${branch}>
      ${viewedStep === null ? `Branch from step ${formatInteger(step)}` : "Branch from here"}
    <//>
    <${Message} name="timeline" class="rewind-note" />
  </div>`;
}
