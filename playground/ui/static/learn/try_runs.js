// The runs of a lesson, to play with: another sequence, and the weights of an earlier step.
import { html, useEffect, useState } from "../vendor/preact.js";
import { requestOrError } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { formatMessage } from "../shared/format.js";
import { store } from "../shared/store.js";

const DELAY_MS = 200; // after the last input
const DEFAULT_TEXT = "3 1 4 1 5";

const predict = (subject, text, step) =>
  requestOrError("runs/predict", {
    owner: store.owner.value,
    subject,
    text,
    ...(step !== null && { step }),
  });

/** Predict with all runs after a pause of the input. Returns a function that ends this. */
function startPrediction(runs, text, step, onReplies) {
  let isCurrent = true;
  const timer = setTimeout(async () => {
    const replies = await Promise.all(runs.map(({ run }) => predict(run, text, step)));
    if (isCurrent) onReplies(replies);
  }, DELAY_MS);
  return () => {
    isCurrent = false;
    clearTimeout(timer);
  };
}

function Prediction({ label, reply: { prediction, target } }) {
  return html`<dt>${label}</dt>
    <dd>
      <${TokenStrip}
        label=${"output, " + label}
        tokens=${prediction}
        targets=${target ?? undefined}
      />
    </dd>`;
}

/**
 * @param {{ runs: any[], sequence?: string }} props `sequence` is the first input
 */
export function TryRuns({ runs, sequence = DEFAULT_TEXT }) {
  const last = Math.max(...runs.map((run) => run.steps)),
    [text, setText] = useState(sequence),
    [step, setStep] = useState(last),
    [replies, setReplies] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (!text.trim() || !runs.length) return undefined;
    return startPrediction(runs, text, step === last ? null : step, setReplies);
  }, [text, step]);
  if (!runs.length) return null;
  const error = replies.find((reply) => reply.error)?.error;
  const title = `Try the trained model${runs.length > 1 ? "s" : ""}`;
  return html`<section class="try" aria-label=${title}>
    <h4>${title}</h4>
    <p class="try-fields">
      <label>
        Sequence
        <input
          type="text"
          class="try-text"
          maxlength="100"
          value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
        />
      </label>
      <label>
        Weights of step
        <input
          type="range"
          class="try-step"
          min="0"
          max=${last}
          value=${step}
          onInput=${(event) => setStep(Number(event.currentTarget.value))}
        />
        <output>${step}</output>
      </label>
    </p>
    <${StatusMessage} kind="error" text=${formatMessage(error)} />
    ${
      !error &&
      html`<dl class="try-outputs">
        ${replies.map(
          (reply, i) =>
            html`<${Prediction} key=${runs[i].label} label=${runs[i].label} reply=${reply} />`,
        )}
      </dl>`
    }
  </section>`;
}
