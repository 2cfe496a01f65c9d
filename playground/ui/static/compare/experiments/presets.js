// Prepared experiments.
import { html, signal } from "../../vendor/preact.js";
import { Section } from "../../shared/components/section.js";
import { StatusMessage } from "../../shared/components/status_message.js";
import { formatCount, formatMessage } from "../../shared/format.js";
import { NewExperiment } from "./new_experiment.js";
import {
  describeDurations,
  errors,
  formatEstimate,
  labelSettings,
  openExperiment,
  presets,
  send,
} from "./state.js";

const HINT =
  "Change one setting and compare the results. Every value is trained with several seeds.";
const LENGTHS_NOTE = "; then evaluated on sequences longer than the training sequences";
const starting = signal(""); // the name of the preset whose request is pending

/** Start a prepared experiment, or open the one that exists. */
async function runPreset({ name, experiment }) {
  if (experiment) return openExperiment(experiment);
  starting.value = name;
  const response = await send("presets", "experiments/submit", { question: name });
  starting.value = "";
  if (response) openExperiment(response.experiment);
}

export const describePreset = ({ runs, estimate }) =>
  `${formatCount(runs, "run")} · ${formatEstimate(estimate)}`;

function Preset({ preset }) {
  const { name, title, why, varied, kind, estimate, experiment } = preset,
    verb = experiment ? "Open" : "Run";
  return html`<li>
    <details>
      <summary>${title}</summary>
      <p class="pg-quiet">${why}</p>
      <p class="varied pg-quiet">${labelSettings(varied)}${kind === "lengths" && LENGTHS_NOTE}</p>
    </details>
    <span class="pg-sub" title=${formatMessage(estimate.message)}>${describePreset(preset)}</span>
    <button
      type="button"
      class="pg-button"
      aria-label=${`${verb}: ${title}`}
      disabled=${starting.value === name}
      onClick=${() => runPreset(preset)}
    >
      ${verb}
    </button>
  </li>`;
}

export function Presets() {
  return html`<${Section}
    class="presets"
    title="Prepared experiments"
    hint=${`${HINT} ${describeDurations(presets.value)}`}
  >
    <ul class="pg-list">
      ${presets.value.map((each) => html`<${Preset} key=${each.name} preset=${each} />`)}
    </ul>
    <${NewExperiment} />
    <${StatusMessage} kind="error" text=${errors.value.presets ?? ""} />
  <//>`;
}
