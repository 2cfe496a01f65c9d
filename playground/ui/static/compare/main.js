// The Compare tab: a race, experiments, and the selected model beside pretrained ones. A process of
// the server runs everything that needs a pretrained model, as a job.
import { effect, html, render } from "../vendor/preact.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { store } from "../shared/store.js";
import { Benchmark } from "./benchmark.js";
import { Experiments, Presets } from "./experiments/experiments.js";
import { formView, NewExperiment } from "./experiments/new_experiment.js";
import { Replications } from "./experiments/replications.js";
import { Results } from "./experiments/results.js";
import { startPolling } from "./experiments/state.js";
import { Outage, resumeJobs } from "./jobs.js";
import { listLocalModels, retryConnection } from "./models.js";
import { currentSection, Pretrained } from "./pretrained.js";
import {
  attach,
  compareView,
  isSharedModel,
  root,
  selectedModel,
  sharedParams,
  view,
  VIEWS,
} from "./state.js";
import { Race } from "./race.js";

const ExperimentsView = () =>
  html`<div class="of-experiments">
    <${Presets} /><${Results} /><${NewExperiment} /><${Experiments} /><${Replications} />
  </div>`;
const PANELS = {
  race: { Component: Race, form: () => "race" },
  experiments: { Component: ExperimentsView, form: () => "" },
  benchmark: {
    Component: Benchmark,
    form: () => "table",
    about:
      "Evaluates your model, pretrained models from the Hub, and baselines on the same held-out " +
      "sequences with the same metrics.",
  },
  pretrained: {
    Component: Pretrained,
    form: () => currentSection().form,
    about:
      "Runs any model of the Hub on any text. Only safetensors weights are loaded, never remote " +
      "code. The download size is shown first.",
  },
};

function Compare() {
  const { Component, about } = PANELS[view.value];
  return html`<h2 class="pg-visually-hidden">Compare</h2>
    ${
      isSharedModel.value &&
      html`<p class="pg-hint">
        A shared run cannot be compared. This view uses ${selectedModel.value?.name ?? "no model"}.
      </p>`
    }
    <div class="pg-row views-row">
      <${SegmentedControl}
        label="Views"
        prefix="compare"
        options=${VIEWS}
        value=${view.value}
        onChange=${(value) => (view.value = value)}
      />
      <${Outage} onRetry=${retryConnection} />
    </div>
    <div class="stage" role="tabpanel" aria-labelledby=${"compare-" + view.value}>
      ${about && html`<p class="pg-hint about">${about}</p>`}
      <${Component} />
    </div>`;
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  store.addView("compare", {
    read: () => ({ ...compareView.read(), ...formView.read() }),
    link: () => sharedParams(PANELS[view.value].form()),
    apply(params) {
      compareView.apply(params);
      formView.apply(params);
    },
  });
  render(html`<${Compare} />`, root);
  await attach(panel);
  startPolling();
  resumeJobs();
}

// The list starts the process of the pretrained models, so it waits for a view that needs them.
let isListed = false;
effect(() => {
  if (isListed || !store.owner.value || ["race", "experiments"].includes(view.value)) return;
  isListed = true;
  listLocalModels();
});
