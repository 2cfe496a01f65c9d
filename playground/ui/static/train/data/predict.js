// The prediction for the input.
import { request, sleep } from "../../shared/api.js";
import { formatInteger } from "../../shared/format.js";
import { Resource } from "../../shared/resource.js";
import { store } from "../../shared/store.js";
import { setMessage } from "../messages.js";
import { state } from "../state.js";
import { batch } from "../../vendor/preact.js";
import { afterFrame, answerLocally } from "./engine.js";

export const TYPING_MS = 150; // until the server gets a text that the user types

/** Whether the page displays a recorded step of a checkpoint, which has only its last weights. */
const isRecordedStep = () =>
  state.status === "checkpoint" &&
  store.input.value === null &&
  state.viewedStep !== null &&
  state.viewedStep !== store.latestStep.value;

/** @param {string} text @param {number | null} step @param {number} delayMs */
async function sendPrediction(text, step, delayMs) {
  const answer = await answerLocally(text);
  if (answer) return answer;
  await sleep(delayMs);
  if (text !== store.sequence.value) return {}; // another prediction has followed
  const reply = await request("runs/predict", {
      owner: store.owner.value,
      subject: state.modelRef,
      text,
      with_forward_pass: store.input.value !== null,
      ...(step === null ? {} : { step }),
    }),
    isPictureNeeded = reply.error && state.switchedOff.length;
  return isPictureNeeded
    ? { ...(await answerLocally(store.suggestedInput.value)), ...reply, prediction: null }
    : reply;
}
export const predictionAnswer = new Resource(sendPrediction, (reason) =>
  setMessage("prediction", reason),
);

/** @param {number} [delayMs] of a request to the server */
export async function predict(delayMs = 0) {
  const text = store.sequence.value,
    { viewedStep: step, displayedOff } = state;
  predictionAnswer.clear();
  const isEmpty = !text.trim() || store.privacy.value;
  if (isEmpty || isRecordedStep()) {
    showPrediction(isEmpty ? {} : { note: "see “guess” below" }, step);
    state.typedPass = null;
    return;
  }
  // without weights; the prediction runs once a snapshot arrives
  if (!state.displayedSnapshot) return;
  const reply = await predictionAnswer.load(text, step, delayMs);
  if (!reply) return;
  const isTyped = reply.off === displayedOff,
    { number } = predictionAnswer;
  batch(() => {
    showPrediction(reply, step);
    if (!isTyped) showPass(reply, step);
  });
  if (!isTyped) return;
  await afterFrame(); // the output of a key comes first: the diagram takes longer to draw
  if (number === predictionAnswer.number) showPass(reply, step);
}

/** @param {any} reply @param {number | null} step of the weights; null for the latest */
function showPrediction({ error = "", prediction = null, ...reply }, step) {
  const origin =
    step !== null && prediction && "with the weights of step " + formatInteger(reply.step);
  state.prediction =
    error || !prediction
      ? null
      : { prediction, target: reply.target, modelRef: state.modelRef, off: reply.off };
  if (reply.off) Object.assign(state, { displayedOff: reply.off, parts: reply.parts });
  setMessage("prediction", error || [origin, reply.note].filter(Boolean).join("; "), {
    isError: Boolean(error),
  });
  store.isInputInvalid.value = Boolean(error && !reply.retryable);
}

/**
 * Show the typed sequence in the diagram, or the probe while the user has typed nothing.
 * @param {any} reply @param {number | null} step of the weights; null for the latest
 */
function showPass(reply, step) {
  const isOfDisplayedStep = step === null || reply.step === state.displayedSnapshot?.step,
    isOwn = store.input.value !== null || state.switchedOff.length;
  state.typedPass =
    isOwn && isOfDisplayedStep && reply.forward_pass
      ? { ...reply.forward_pass, step: reply.step }
      : null;
}
