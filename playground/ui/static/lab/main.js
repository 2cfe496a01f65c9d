// The Lab tab: prepared experiments, the owner's experiments, the open experiment, and replications
// of published claims. Experiments run on the server. The tab polls them and draws their results.
import { store } from "../shared/store.js";
import { html, render } from "../vendor/preact.js";
import { Experiments } from "./experiments.js";
import { labView } from "./new_experiment.js";
import { startPolling } from "./polling.js";
import { Presets } from "./presets.js";
import { Replications } from "./replications.js";
import { Results } from "./results.js";
import { attach, root } from "./view.js";

function Lab() {
  return html`<h2 class="pg-visually-hidden">Lab</h2>
    <div class="pg-columns">
      <div>
        <${Presets} />
        <${Experiments} />
      </div>
      <${Results} />
    </div>
    <${Replications} />`;
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  store.addView("lab", labView);
  render(html`<${Lab} />`, root);
  await attach(panel);
  startPolling();
}
