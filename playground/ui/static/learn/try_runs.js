// The runs of a lesson, to play with: another sequence, and the weights of an earlier step.
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { request } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";

const DELAY_MS = 200; // after the last input
const DEFAULT_TEXT = "3 1 4 1 5";

/** Predict with all runs. */
async function predict(runs, text, step) {
  const payload = { owner: store.owner.value, text, ...(step !== null && { step }) },
    replies = await Promise.all(
      runs.map(({ run: subject }) => request("runs/predict", { ...payload, subject })),
    );
  return replies.find((reply) => reply.error) ?? { replies };
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
    answer = useMemo(() => new Resource(predict), []);
  useEffect(() => {
    if (text.trim() && runs.length)
      answer.loadAfter(DELAY_MS, runs, text, step === last ? null : step);
  }, [text, step]);
  if (!runs.length) return null;
  const error = answer.error.value,
    replies = answer.data.value?.replies ?? [];
  const title = `Try the trained model${runs.length > 1 ? "s" : ""}`;
  return html`<section class="pg-card try" aria-label=${title}>
    <h4>${title}</h4>
    <p class="pg-row try-fields">
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
    <${StatusMessage} kind="error" text=${error} />
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
