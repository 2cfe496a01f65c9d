// Model, step and input of the tab, with the prediction, Copy link and Export.
import { html, useRef } from "../vendor/preact.js";
import { nearestIndex } from "../shared/chart_data.js";
import { renderOptions } from "../shared/components/model_select.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { copyViewLink, ExportMenu } from "./export.js";
import { typeInput } from "./requests.js";
import { prediction, problem } from "./state.js";

const TYPING_DELAY_MS = 20;

/** Return the options of the model select; a shared run is not among the user's models. */
export function modelOptions() {
  const ref = store.model.value,
    options = store.models.value;
  return !ref || options.some((each) => each.value === ref)
    ? options
    : [{ value: ref, label: "a shared run", group: "Shared with you" }, ...options];
}

export const modelLabel = () =>
  modelOptions().find((each) => each.value === store.model.value)?.label ?? "";

/** The steps with stored weights, on an axis of steps as in the Train tab. */
function StepSlider() {
  const steps = store.weightSteps.value;
  if (steps.length < 2) return null;
  const last = steps[steps.length - 1],
    index = nearestIndex(steps, store.step.value ?? last);
  const select = (at, slider) => {
    const step = steps[Math.max(0, Math.min(steps.length - 1, at))];
    store.step.value = step === last ? null : step;
    slider.value = String(step);
  };
  const onKeyDown = (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    select(index + by, event.currentTarget);
  };
  const words = (store.step.value === null ? "latest, " : "") + formatInteger(steps[index]);
  return html`<label class="at-step">
    step
    <input
      class="step"
      type="range"
      min=${steps[0]}
      max=${last}
      value=${steps[index]}
      aria-label="Step of the run"
      aria-valuetext=${"step " + words}
      onKeyDown=${onKeyDown}
      onInput=${(event) =>
        select(nearestIndex(steps, Number(event.currentTarget.value)), event.currentTarget)}
    />
    <output class="step-words">${words}</output>
  </label>`;
}

/** The prediction for the input, compared with the target if that is known. */
function Prediction() {
  const data = prediction.value;
  if (!data) return null;
  const withoutEos = (tokens) => tokens.filter((token) => token !== "EOS"),
    // Only EOS differs: the strip shows it.
    isEosWrong =
      data.answer &&
      withoutEos(data.written).join() === withoutEos(data.answer).join() &&
      data.written.join() !== data.answer.join(),
    clean = isEosWrong ? (tokens) => tokens : withoutEos;
  return html`<${TokenStrip}
    label="Prediction"
    tokens=${clean(data.written)}
    targets=${data.answer ? clean(data.answer) : undefined}
  />`;
}

function InputLine() {
  const timer = useRef(/** @type {any} */ (undefined));
  const onInput = (event) => {
    const { value } = event.currentTarget;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => typeInput(value), TYPING_DELAY_MS);
  };
  const { text, isTransient } = problem.value;
  return html`<div class="ask">
      <input
        class="sequence"
        type="text"
        maxlength="400"
        spellcheck=${false}
        autocomplete="off"
        aria-label="Input sequence"
        aria-invalid=${text && !isTransient ? "true" : undefined}
        placeholder=${store.suggestedInput.value}
        value=${store.sequence.value}
        onInput=${onInput}
      />
      <span class="arrow" aria-hidden="true">→</span>
      <output class="answer" aria-live="polite"><${Prediction} /></output>
      <span class="note hint">${prediction.value?.note}</span>
    </div>
    <p class="problem" role="alert">${text}</p>`;
}

export const Toolbar = () =>
  html`<div class="top">
      <select
        class="subject"
        aria-label="Model to inspect"
        value=${store.model.value}
        onChange=${(event) => store.openModel(event.currentTarget.value)}
      >
        ${renderOptions(modelOptions(), store.model.value)}
      </select>
      <${StepSlider} />
      <span class="right">
        <button
          type="button"
          class="quiet link"
          title="Copy a link to this view"
          onClick=${(event) => copyViewLink(event.currentTarget)}
        >
          Copy link
        </button>
        <${ExportMenu} />
      </span>
    </div>
    <${InputLine} />`;
