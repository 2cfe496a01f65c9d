import { formatCount, formatDuration, formatNumber, formatPercent } from "../shared/format.js";
import { CROSS_CAPTION, ENCODER_CAPTION, LEARNING_RATE, LOSS_TITLE } from "../shared/strings.js";
import { state } from "./state.js";

export const ACTIVE_STATUSES = ["waiting", "starting", "training", "paused", "stopping"];
export const TERMINAL_STATUSES = ["done", "stopped", "failed", "not-found", "checkpoint", "empty"];
const ATTENTION_KINDS = {
  cross: {
    from: "Target position",
    to: "source position",
    reading: CROSS_CAPTION,
  },
  encoder: {
    from: "Source position",
    to: "source position",
    reading: ENCODER_CAPTION,
  },
  decoder: {
    from: "Target position",
    to: "target position",
    reading:
      "Rows: target tokens (queries). Columns: earlier target tokens (keys). " +
      "Masked positions are hatched.",
  },
};
// An architecture with one stack has source and target in one sequence.
const SINGLE_STACK_DECODER = {
  from: "Position",
  to: "position",
  reading:
    "Rows: source and target tokens (queries). Columns: the same tokens (keys). " +
    "Masked positions are hatched.",
};
const SINGLE_STACK_ENCODER = {
  from: "Position",
  to: "position",
  reading: "Rows: source tokens, then SOS padding (queries). Columns: the same tokens (keys).",
};
export const attentionKind = () =>
  state.probeInfo.axes.cross || !state.probeInfo.axes[state.selectedKind]
    ? ATTENTION_KINDS[state.selectedKind]
    : state.selectedKind === "decoder"
      ? SINGLE_STACK_DECODER
      : SINGLE_STACK_ENCODER;
export const SPECIAL_TOKENS = {
  PAD: ["·", "the model generated PAD, which is always wrong"],
  SOS: ["‹", "the model generated SOS, which is always wrong"],
};
export const METRICS = {
  loss: ["Loss", LOSS_TITLE],
  learning_rate: [LEARNING_RATE, "Learning rate of each step, after warm-up and schedule"],
  grad_norm: ["Gradient norm", "Gradient norm of each step, before clipping"],
};
export const overlays = new Map(); // model reference -> {colorIndex, curve} of an overlaid run

export const formatQueuePosition = (n) =>
  (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
// The time until the last step at the present speed.
function formatTimeLeft(latest) {
  const { step, max_steps: maxSteps, speed } = state.lastResponse,
    stepsPerSecond = speed || latest?.steps_per_second;
  return stepsPerSecond && maxSteps > step
    ? " · about " +
        formatDuration(Math.max(1, Math.round((maxSteps - step) / stepsPerSecond))).replace(
          ".0 s",
          " s",
        ) +
        " left"
    : "";
}
export function formatStatus() {
  const p = state.lastResponse.latest,
    step = state.lastResponse.step || 0;
  const ofTotal =
    state.lastResponse.max_steps && step < state.lastResponse.max_steps
      ? " of " + state.lastResponse.max_steps.toLocaleString("en")
      : "";
  const details =
    (state.lastResponse.parameters
      ? " · " + state.lastResponse.parameters.toLocaleString("en") + " parameters"
      : "") +
    (state.lastResponse.device ? " · " + state.lastResponse.device : "") +
    (state.modelRef.startsWith("watch:") ? " · shared with you, read-only" : "");
  const best =
    state.evaluations && state.evaluations.length
      ? state.evaluations[state.evaluations.length - 1]
      : null;
  const latestScore = best
    ? " · exact match " +
      formatPercent(best[1]) +
      " of " +
      formatCount(best[3], "held-out sequence")
    : "";
  const score = state.scores
    ? " · exact match " +
      formatPercent(state.scores.exact_match) +
      " of " +
      formatCount(state.scores.n, "held-out sequence")
    : latestScore;
  const messagePrefix = state.lastResponse.message
    ? state.lastResponse.message[0].toUpperCase() + state.lastResponse.message.slice(1) + ". "
    : "";
  switch (state.status) {
    case "waiting":
      return state.lastResponse.awaits_zerogpu
        ? messagePrefix +
            "Waiting for the next slice of the GPU · step " +
            step +
            ofTotal +
            " · slices continue while this page shows the run" +
            details
        : messagePrefix
          ? messagePrefix + "The run starts automatically"
          : "Queued: " +
            (state.maxActiveRuns
              ? "all " + state.maxActiveRuns + " training slots are in use"
              : "no training slot is free") +
            (state.lastResponse.queue_position
              ? " · " + formatQueuePosition(state.lastResponse.queue_position)
              : "") +
            " · starts automatically";
    case "starting":
      return state.lastResponse.uses_zerogpu
        ? "Requesting a GPU from ZeroGPU"
        : "Starting a worker";
    case "training":
      return state.lastResponse.branched_from_step && step < state.lastResponse.branched_from_step
        ? "Replaying the first steps exactly, up to step " +
            state.lastResponse.branched_from_step +
            " (" +
            step +
            ")" +
            details
        : messagePrefix +
            "Training · step " +
            step +
            ofTotal +
            (p && p.steps_per_second && !state.lastResponse.speed
              ? " · " + formatNumber(p.steps_per_second) + " steps/s"
              : state.lastResponse.speed
                ? " · slowed to " + formatCount(state.lastResponse.speed, "step") + "/s"
                : "") +
            formatTimeLeft(p) +
            details +
            (state.lastResponse.time_left
              ? " · pauses in " +
                formatDuration(state.lastResponse.time_left[0]) +
                ": " +
                state.lastResponse.time_left[1]
              : "");
    case "paused":
      return (
        messagePrefix +
        "Paused at step " +
        step +
        ofTotal +
        (state.lastResponse.branched_from_step === step && state.lastResponse.has_worker
          ? ", where this run branched off: change something, then Resume"
          : "") +
        details
      );
    case "empty":
      return "No model yet: press Train.";
    case "stopping":
      return "Stopping and saving. Press Stop again to stop immediately.";
    case "done":
      return (
        messagePrefix +
        "Done · " +
        formatCount(step, "step") +
        " in " +
        formatDuration(p && p.seconds ? p.seconds : 0) +
        score +
        details
      );
    case "stopped":
      return (
        messagePrefix + "Stopped at step " + step + ofTotal + " and saved" + latestScore + details
      );
    case "checkpoint":
      return (
        "Checkpoint " +
        state.lastResponse.name +
        " · trained " +
        formatCount(step, "step") +
        score +
        details
      );
    case "failed":
      return "Failed: " + state.lastResponse.message;
    case "not-found":
      return (
        state.lastResponse.message ||
        "This run is not on this server, or not yours. " +
          "Train a new one, or choose another model above."
      );
    default:
      return "Opening";
  }
}
