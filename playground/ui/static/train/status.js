// The status of the open model in words.
import { formatCount, formatDuration, formatInteger, formatNumber } from "../shared/format.js";
import { formatPercent } from "../shared/format.js";
import { store } from "../shared/store.js";
import { state } from "./state.js";

const NOT_FOUND =
  "This run is not on this server, or not yours. Train a new one, or choose another model above.";
const ORDINALS = ["", "next", "second", "third"];

/** @param {number} n */
export const formatQueuePosition = (n) => (ORDINALS[n] ?? n + "th") + " in the queue";

/** The time until the last step at the present speed. */
function formatTimeLeft() {
  const { step, max_steps: maxSteps, speed, latest } = state.lastResponse,
    stepsPerSecond = speed || latest?.steps_per_second;
  if (!stepsPerSecond || !(maxSteps > step)) return "";
  const seconds = Math.max(1, Math.round((maxSteps - step) / stepsPerSecond));
  return `about ${formatDuration(seconds).replace(".0 s", " s")} left`;
}

/** @param {number} score @param {number} n */
const formatScore = (score, n) =>
  `exact match ${formatPercent(score)} of ${formatCount(n, "held-out sequence")}`;

function formatLatestScore() {
  const latest = state.evaluations.at(-1);
  return latest ? formatScore(latest[1], latest[3]) : "";
}

const formatFinalScore = () =>
  state.finalScores
    ? formatScore(state.finalScores.exact_match, state.finalScores.n)
    : formatLatestScore();

const formatSharing = () => state.modelRef.startsWith("watch:") && "shared with you, read-only";

/** What the model is: its size, its device, and whether it is shared. */
function formatDetails() {
  const { parameters, device } = state.lastResponse;
  return [parameters && formatInteger(parameters) + " parameters", device, formatSharing()];
}

function formatStep() {
  const { step = 0, max_steps: maxSteps } = state.lastResponse;
  return `step ${step}` + (maxSteps && step < maxSteps ? " of " + formatInteger(maxSteps) : "");
}

function describeWaiting() {
  const { message, queue_position: position } = state.lastResponse,
    { slots } = store.server.value;
  if (message) return ["The run starts automatically"];
  return [
    "Queued: " + (slots ? `all ${slots} training slots are in use` : "no training slot is free"),
    position && formatQueuePosition(position),
    "starts automatically",
  ];
}

function formatSpeed() {
  const { speed, latest } = state.lastResponse;
  if (speed) return `slowed to ${formatCount(speed, "step")}/s`;
  return latest?.steps_per_second && formatNumber(latest.steps_per_second) + " steps/s";
}

function describeTraining() {
  const { time_left: timeLeft } = state.lastResponse;
  return [
    "Training",
    formatStep(),
    formatSpeed(),
    formatTimeLeft(),
    ...formatDetails(),
    timeLeft && `pauses in ${formatDuration(timeLeft[0])}: ${timeLeft[1]}`,
  ];
}

function describePaused() {
  const { branched_from_step: from, step = 0, has_worker: hasWorker } = state.lastResponse,
    isBranch = from === step && hasWorker;
  return [
    `Paused at ${formatStep()}` +
      (isBranch ? ", where this run branched off: change something, then Resume" : ""),
    ...formatDetails(),
  ];
}

/** The parts of the text by status. @type {Record<string, () => any[]>} */
const DESCRIPTIONS = {
  waiting: describeWaiting,
  training: describeTraining,
  paused: describePaused,
  done: () => {
    const { step = 0, latest } = state.lastResponse;
    return [
      "Done",
      `${formatCount(step, "step")} in ${formatDuration(latest?.seconds ?? 0)}`,
      formatFinalScore(),
      formatSharing(), // without the other details, in one line beside the buttons
    ];
  },
  stopped: () => [
    ...(state.lastResponse.step
      ? ["Stopped at " + formatStep(), "checkpoint saved"]
      : ["Stopped before the first step"]),
    formatLatestScore(),
    ...formatDetails(),
  ],
};

/** The texts without the message of the server before them. @type {Record<string, () => any[]>} */
const PLAIN_DESCRIPTIONS = {
  starting: () => ["Starting a worker"],
  stopping: () => ["Stopping and saving. Press Stop again to stop immediately."],
  empty: () => ["No model yet: press Train."],
  checkpoint: () => [
    "Checkpoint " + state.lastResponse.name,
    formatCount(state.lastResponse.step || 0, "step"),
    formatFinalScore(),
    ...formatDetails(),
  ],
  failed: () => ["Failed: " + state.lastResponse.message],
  "not-found": () => [state.lastResponse.message || NOT_FOUND],
};

export function formatStatus() {
  const { status, lastResponse } = state,
    { branched_from_step: from, step = 0, message } = lastResponse,
    join = (/** @type {any[]} */ parts) => parts.filter(Boolean).join(" · ");
  if (status === "training" && from && step < from)
    return join([
      `Replaying the first steps exactly, up to step ${from} (${step})`,
      ...formatDetails(),
    ]);
  if (PLAIN_DESCRIPTIONS[status]) return join(PLAIN_DESCRIPTIONS[status]());
  const prefix = message ? message[0].toUpperCase() + message.slice(1) + ". " : "";
  return DESCRIPTIONS[status] ? prefix + join(DESCRIPTIONS[status]()) : "Opening";
}
