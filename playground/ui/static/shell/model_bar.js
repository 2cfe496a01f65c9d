// The model, step and input of all tabs.
import { html } from "../vendor/preact.js";
import { renderOptions } from "../shared/components/select.js";
import { StepSlider } from "../shared/components/step_slider.js";
import { formatInteger } from "../shared/format.js";
import { INPUT_SEQUENCE } from "../shared/strings.js";
import { nearestIndex, store } from "../shared/store.js";
/** @import { Option } from "../shared/types.js" */

const TABS_WITH_MODEL = ["train", "inspect", "compare"];
const TABS_WITH_STEP = ["train", "inspect"];
const openTab = () => store.tab.value ?? "train";

/** Return whether the open tab uses the model of the bar. */
export const hasModelBar = () => TABS_WITH_MODEL.includes(openTab());

/** Return the steps of the slider. Only Train replays the recording of a checkpoint. */
function selectableSteps() {
  const isRecording = store.model.value?.startsWith("checkpoint:");
  return isRecording && store.tab.value !== "train" ? [] : store.weightSteps.value;
}

/** Return the options of the model select; a shared run is not among the user's models. */
export function modelOptions() {
  const ref = store.model.value,
    options = store.models.value;
  if (!ref || options.some((each) => each.value === ref)) return options;
  const shared = {
    value: ref,
    label: store.modelName.value || "a shared run",
    group: "Shared with you",
  };
  return ref.startsWith("watch:") ? [shared, ...options] : options;
}

const ModelSelect = () =>
  html`<label class="page-bar-model">
    <span>Model</span>
    <select
      class="subject"
      aria-label="Shown model"
      value=${store.model.value}
      onChange=${(/** @type {any} */ event) => store.openModel(event.currentTarget.value)}
    >
      ${renderOptions(modelOptions(), store.model.value)}
    </select>
  </label>`;

function Step() {
  const steps = selectableSteps(),
    step = steps.length ? store.step.value : null,
    text =
      step === null
        ? "latest, " + formatInteger(store.latestStep.value)
        : formatInteger(steps[nearestIndex(steps, step)]);
  return html`<label class=${openTab() === "train" ? "page-bar-step in-charts" : "page-bar-step"}>
    <span>Step</span>${
      steps.length > 1 &&
      html`<${StepSlider}
        class="step"
        steps=${steps}
        step=${step}
        onStep=${(/** @type {number | null} */ next) => (store.step.value = next)}
        aria-label="Step of the model"
        aria-valuetext=${"step " + text}
      />`
    }<output class="step-words" aria-live="off">${text}</output>
  </label>`;
}

/** The sequence for the model. An embedded view shows it without the bar. */
export const SequenceInput = () =>
  html`<input
    class="sequence"
    type="text"
    maxlength="400"
    spellcheck=${false}
    autocomplete="off"
    aria-label=${INPUT_SEQUENCE}
    aria-invalid=${store.isInputInvalid.value ? "true" : undefined}
    disabled=${Boolean(store.privacy.value)}
    title=${store.privacy.value || undefined}
    placeholder=${store.privacy.value ? "private" : store.suggestedInput.value}
    value=${store.privacy.value ? "" : store.sequence.value}
    onInput=${(/** @type {any} */ event) => store.setInput(event.currentTarget.value)}
  />`;

export const ModelBar = () =>
  html`<div class="page-bar pg" role="group" aria-label="Model, step and input of all tabs">
    <${ModelSelect} />
    ${
      TABS_WITH_STEP.includes(openTab()) &&
      html`<${Step} /><label class="page-bar-input"><span>Input</span><${SequenceInput} /></label>`
    }
  </div>`;
