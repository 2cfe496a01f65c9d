// The prediction for the input.
import { NO_RESPONSE, request, requestWithRetry } from "../../shared/api.js";
import { formatInteger } from "../../shared/format.js";
import { store } from "../../shared/store.js";
import { setMessage } from "../messages.js";
import { state } from "../state.js";

const DEBOUNCE_MS = 150;
let debounceTimer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

/** Whether the page displays a recorded step of a checkpoint, which has only its last weights. */
const isRecordedStep = () =>
  state.status === "checkpoint" &&
  store.input.value === null &&
  state.viewedStep !== null &&
  state.viewedStep !== store.latestStep.value;

/** Predict once the user has stopped typing. */
export function schedulePrediction() {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(predict, DEBOUNCE_MS);
}

/** @param {string} text @param {number | null} step */
async function sendPrediction(text, step) {
  const payload = {
    owner: state.owner,
    subject: state.modelRef,
    text,
    with_forward_pass: store.input.value !== null,
  };
  try {
    return await request("runs/predict", step === null ? payload : { ...payload, step });
  } catch {
    return { error: NO_RESPONSE, retryable: true };
  }
}

export async function predict() {
  clearTimeout(debounceTimer);
  const text = store.sequence.value,
    requestId = ++state.predictRequestId,
    step = state.viewedStep;
  state.predictedAt = Date.now();
  if (!text.trim() || store.privacy.value) {
    showPrediction({}, step);
    return;
  }
  if (isRecordedStep()) {
    showPrediction({ note: "see the diagram, which shows the recorded step" }, step);
    return;
  }
  // without weights; the prediction runs once a snapshot arrives
  if (!state.displayedSnapshot) return;
  const reply = await requestWithRetry(
    () => sendPrediction(text, step),
    () => requestId === state.predictRequestId,
    (error) => setMessage("prediction", error),
  );
  if (requestId === state.predictRequestId) showPrediction(reply, step);
}

/** @param {any} reply @param {number | null} step of the weights; null for the latest */
function showPrediction({ error = "", prediction = null, ...reply }, step) {
  const isOfDisplayedStep = step === null || reply.step === state.displayedSnapshot?.step,
    origin = step !== null && prediction && "with the weights of step " + formatInteger(reply.step);
  state.prediction =
    error || !prediction ? null : { prediction, target: reply.target, modelRef: state.modelRef };
  setMessage("prediction", error || [origin, reply.note].filter(Boolean).join("; "), {
    isError: Boolean(error),
  });
  store.isInputInvalid.value = Boolean(error && !reply.retryable);
  // The diagram shows the typed sequence, or the probe while the user has typed nothing.
  state.typedPass = (isOfDisplayedStep && reply.forward_pass) || null;
}
