// The live view: several scripts that live_api.py concatenates after common.js. It polls the server
// for new data and holds no connection open. The page computes no values: the training and
// inspection processes do.
const root = $(".live");
const ACTIVE_STATUSES = ["waiting", "starting", "training", "paused", "stopping"];
const TERMINAL_STATUSES = ["done", "stopped", "failed", "not-found", "checkpoint", "empty"];
const ATTENTION_KINDS = {
  cross: {
    from: "Target position",
    to: "source position",
    reading: "Rows: target tokens (queries). Columns: source tokens (keys).",
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
const attentionKind = () =>
  probeInfo.axes.cross || !probeInfo.axes[selectedKind]
    ? ATTENTION_KINDS[selectedKind]
    : selectedKind === "decoder"
      ? SINGLE_STACK_DECODER
      : SINGLE_STACK_ENCODER;
const SPECIAL_TOKENS = {
  PAD: ["·", "the model generated PAD, which is always wrong"],
  SOS: ["‹", "the model generated SOS, which is always wrong"],
};
const METRICS = {
  loss: ["Loss", "Cross-entropy of the next token on the training batch of each step"],
  learning_rate: ["Learning rate", "Learning rate of each step, after warm-up and schedule"],
  grad_norm: ["Gradient norm", "Gradient norm of each step, before clipping"],
};

// The open model and its state.
let owner = "",
  modelRef = "",
  linkedModel = "",
  defaultModel = "",
  pollGeneration = 0,
  isFresh = true;
let metricCurve, evaluations, pointCount, seriesId, snapshotVersion;
let lastResponse = {},
  status = "opening",
  probeInfo,
  latestSnapshot,
  scores,
  weightSteps = [];
let displayedSnapshot = null,
  viewedStep = null; // the displayed snapshot, and the earlier step selected on the timeline
let selectedKind = "cross",
  selectedHead = [0, 0],
  selectedMetric = "loss",
  hoverStep = null,
  hoverCell = null,
  renderScheduled = false;
const overlays = new Map(); // model reference -> {place, curve} of an overlaid run

const formatQueuePosition = (n) =>
  (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
function formatStatus() {
  const p = lastResponse.latest,
    step = lastResponse.step || 0;
  const ofTotal =
    lastResponse.max_steps && step < lastResponse.max_steps
      ? " of " + lastResponse.max_steps.toLocaleString("en")
      : "";
  const details =
    (lastResponse.parameters
      ? " · " + lastResponse.parameters.toLocaleString("en") + " parameters"
      : "") +
    (lastResponse.device ? " · " + lastResponse.device : "") +
    (modelRef.startsWith("watch:") ? " · shared with you, read-only" : "");
  const best = evaluations && evaluations.length ? evaluations[evaluations.length - 1] : null;
  const latestScore = best
    ? " · exact match " + formatPercent(best[1]) + " of " + pluralize(best[3], "held-out sequence")
    : "";
  const score = scores
    ? " · exact match " +
      formatPercent(scores.exact_match) +
      " of " +
      pluralize(scores.n, "held-out sequence")
    : latestScore;
  const messagePrefix = lastResponse.message
    ? lastResponse.message[0].toUpperCase() + lastResponse.message.slice(1) + ". "
    : "";
  switch (status) {
    case "waiting":
      return lastResponse.awaits_zerogpu
        ? messagePrefix +
            "Waiting for the next slice of the GPU · step " +
            step +
            ofTotal +
            " · slices continue while this page shows the run" +
            details
        : messagePrefix
          ? messagePrefix + "The run starts automatically"
          : "Queued: " +
            (maxActiveRuns
              ? "all " + maxActiveRuns + " training slots are in use"
              : "no training slot is free") +
            (lastResponse.queue_position
              ? " · " + formatQueuePosition(lastResponse.queue_position)
              : "") +
            " · starts automatically";
    case "starting":
      return lastResponse.uses_zerogpu ? "Requesting a GPU from ZeroGPU" : "Starting a worker";
    case "training":
      return lastResponse.branched_from_step && step < lastResponse.branched_from_step
        ? "Replaying the first steps exactly, up to step " +
            lastResponse.branched_from_step +
            " (" +
            step +
            ")" +
            details
        : messagePrefix +
            "Training · step " +
            step +
            ofTotal +
            (p && p.steps_per_second && !lastResponse.speed
              ? " · " + formatNumber(p.steps_per_second) + " steps/s"
              : lastResponse.speed
                ? " · slowed to " + pluralize(lastResponse.speed, "step") + "/s"
                : "") +
            details +
            (lastResponse.time_left
              ? " · pauses in " +
                formatDuration(lastResponse.time_left[0]) +
                ": " +
                lastResponse.time_left[1]
              : "");
    case "paused":
      return (
        messagePrefix +
        "Paused at step " +
        step +
        ofTotal +
        (lastResponse.branched_from_step === step && lastResponse.has_worker
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
        pluralize(step, "step") +
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
        lastResponse.name +
        " · trained " +
        pluralize(step, "step") +
        score +
        details
      );
    case "failed":
      return "Failed: " + lastResponse.message;
    case "not-found":
      return (
        lastResponse.message ||
        "This run is not on this server, or not yours. " +
          "Train a new one, or choose another model above."
      );
    default:
      return "Opening";
  }
}
