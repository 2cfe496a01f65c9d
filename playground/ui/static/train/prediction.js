import { NO_RESPONSE, request, requestWithRetry } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { store } from "../shared/store.js";
import { scheduleRender } from "./rendering.js";
import { renderAnswer } from "./samples.js";
import { state } from "./state.js";
import { $ } from "./view.js";

const DEBOUNCE_MS = 150;
let debounceTimer;

/** Predict once the user has stopped typing. */
export function schedulePrediction() {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(predict, DEBOUNCE_MS);
}

export async function predict() {
  clearTimeout(debounceTimer);
  const text = store.sequence.value,
    requestId = ++state.predictRequestId,
    step = state.viewedStep;
  state.predictedAt = Date.now();
  if (!text.trim()) {
    $(".answer").replaceChildren();
    setMessage($(".try-note"), "");
    store.isInputInvalid.value = false;
    showTypedPass(null);
    return;
  }
  // without weights; the prediction runs once a snapshot arrives
  if (!state.displayedSnapshot) return;
  const send = async () => {
    try {
      return await request("runs/predict", {
        owner: state.owner,
        subject: state.modelRef,
        text,
        ...(step === null ? {} : { step }),
      });
    } catch (error) {
      return { error: NO_RESPONSE, retryable: true };
    }
  };
  const reply = await requestWithRetry(
    send,
    () => requestId === state.predictRequestId,
    (error) => setMessage($(".try-note"), error),
  );
  if (requestId !== state.predictRequestId) return;
  const isTyped = store.input.value !== null,
    isOfDisplayedStep = step === null || reply.step === state.displayedSnapshot?.step;
  showTypedPass((isTyped && isOfDisplayedStep && reply.forward_pass) || null);
  setMessage(
    $(".try-note"),
    reply.error ||
      [step !== null && "with the weights of step " + reply.step.toLocaleString("en"), reply.note]
        .filter(Boolean)
        .join("; "),
    reply.error ? "error" : "",
  );
  store.isInputInvalid.value = Boolean(reply.error && !reply.retryable);
  if (reply.error) $(".answer").replaceChildren();
  else {
    reply.target
      ? renderAnswer($(".answer"), reply.prediction, reply.target)
      : $(".answer").replaceChildren(reply.prediction.join(" "));
  }
}

// The diagram shows the typed sequence, or the probe while the user has typed nothing.
function showTypedPass(pass) {
  if (pass === state.typedPass) return;
  state.typedPass = pass;
  scheduleRender();
}
