// Experiments: prepared ones, the owner's, the open one, and replications of published claims. The
// server runs them; this view polls them and draws their results.
import { html } from "../../vendor/preact.js";
import { Experiments } from "./experiments.js";
import { NewExperiment } from "./new_experiment.js";
import { Presets } from "./presets.js";
import { Replications } from "./replications.js";
import { Results } from "./results.js";

export const ExperimentsView = () =>
  html`<div class="of-experiments">
    <${Presets} />
    <${Results} />
    <${NewExperiment} />
    <${Experiments} />
    <${Replications} />
  </div>`;
