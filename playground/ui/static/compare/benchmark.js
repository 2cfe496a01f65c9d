// Benchmark: the selected model, pretrained models and baselines on the same held-out sequences.
import { Button } from "../shared/components/buttons.js";
import { html, signal } from "../vendor/preact.js";
import { Field, Form } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { downloadJson } from "../shared/download.js";
import { formatCount } from "../shared/format.js";
import { isActive } from "../shared/job.js";
import { Examples } from "./benchmark_examples.js";
import {
  addRows,
  emptyResults,
  exportData,
  isBaseline,
  loadResults,
  results,
  ResultTable,
  saveResults,
} from "./benchmark_table.js";
import { CompareJob } from "./jobs.js";
import {
  DEFAULT_MODELS,
  describeDownloads,
  describeModelCost,
  isFolderName,
  isUnavailable,
  listLocalModels,
  loadModelFacts,
  modelNames,
  useModelFacts,
  validateModelName,
} from "./models.js";
import { createForm, selectedModel, showResult, subject, useRecorded, view } from "./state.js";
/** @import { FieldSpec } from "../shared/types.js" */

const MAX_MODELS = 6;
const FAIRNESS_NOTE =
  "The models do not compete on equal terms: yours was trained on this task, pretrained models " +
  "only get few-shot examples in the prompt.";
const READING = [
  [
    "exact match, token accuracy",
    "Correct examples and correct tokens, EOS included; in brackets the interval.",
  ],
  [
    "p",
    "The probability of so large a difference from your model, or a larger one, if both had the " +
      "same exact match (McNemar's test on the same examples, not corrected for several models).",
  ],
  ["time per example", "It depends on this machine and its load."],
];
const FIELDS = /** @type {FieldSpec[]} */ ([
  { name: "n", label: "Held-out examples", min: 1, max: 500 },
  { name: "shots", label: "Few-shot examples", min: 0, max: 32 },
]).map((field) => ({ ...field, type: "number", isRequired: true, isInteger: true }));

/** @param {{ models?: unknown }} stored */
const dropInvalidModels = ({ models, ...stored }) => ({
  ...stored,
  ...(Array.isArray(models)
    ? { models: models.filter((each) => typeof each?.name === "string").slice(0, MAX_MODELS) }
    : {}),
});
export const form = createForm(
  "table",
  { models: DEFAULT_MODELS.map((name) => ({ name, on: true })), n: 20, shots: 8 },
  dropInvalidModels,
);
const newName = signal("");
const nameError = signal("");
loadResults();

/** Return the line below the progress of a job that is done. */
export function describeResults({ examples, rows }) {
  const n = Math.max(0, ...Object.values(examples).map((each) => each.length)),
    evaluated = Object.values(rows).filter((row) => !isBaseline(row) && !row.error);
  return (
    `Evaluated: ${formatCount(n, "example")}, ` +
    `${formatCount(evaluated.length, "model")} and the baselines.`
  );
}

const job = new CompareJob("table", {
  onRows: (rows, request) => (results.value = addRows(results.value, rows, request)),
  onEnd: (_, request) => {
    if (request.models.length) loadModelFacts(request.models, true); // they are local now
    listLocalModels();
    saveResults();
  },
});

const listSelected = () => form.value.models.filter((each) => each.on).map((each) => each.name);

function runBenchmark() {
  const { n, shots } = form.value;
  job.start(
    "benchmark",
    {
      models: listSelected().filter((name) => !isUnavailable(name)),
      n: Number(n),
      shots: Number(shots),
      of: subject.value,
    },
    subject.value,
  );
  showResult();
}

function retryModel(model) {
  const { request, subject: of } = results.value;
  job.start("benchmark", { ...request, models: [model], retry: model }, of);
}

/** Evaluate these models, and no others. */
export function benchmarkModels(names) {
  const others = form.value.models
    .filter((each) => !names.includes(each.name))
    .map((each) => ({ ...each, on: false }));
  const selected = names.map((name) => ({ name, on: true }));
  form.set("models", [...selected, ...others].slice(0, MAX_MODELS));
  view.value = "benchmark";
  runBenchmark();
}

/** Return why a model cannot be added; empty if it can. */
export function validateNewModel(name, models) {
  if (!name) return "Enter user/name, or a name such as gpt2.";
  if (models.some((each) => each.name === name)) return `${name} is already in the list.`;
  if (models.length >= MAX_MODELS)
    return `The limit is ${formatCount(MAX_MODELS, "model")} besides yours; remove one first.`;
  return validateModelName(name);
}

async function addModel(event) {
  event.preventDefault();
  const name = newName.value.trim(),
    { models } = form.value;
  nameError.value = validateNewModel(name, models);
  if (!nameError.value && isFolderName(name)) {
    await loadModelFacts([name], true);
    const { text, isError } = describeModelCost(name);
    if (isError) nameError.value = text;
  }
  if (nameError.value || newName.value.trim() !== name) return; // the name stays
  newName.value = "";
  form.set("models", [...form.value.models, { name, on: true }]);
}

function ModelItem({ model }) {
  const { name, on: isSelected } = model,
    { text, isError } = isUnavailable(name)
      ? { text: "Not on this machine", isError: false }
      : describeModelCost(name),
    /** Replace the model in the list. */
    replace = (/** @type {any[]} */ ...by) =>
      form.set(
        "models",
        form.value.models.flatMap((each) => (each === model ? by : [each])),
      );
  return html`<li>
    <label>
      <input
        type="checkbox"
        checked=${isSelected}
        onChange=${(event) => replace({ name, on: event.currentTarget.checked })}
      />
      <span class="name">${name}</span>
    </label>
    <button type="button" class="remove" aria-label=${"Remove " + name} onClick=${() => replace()}>
      ×
    </button>
    <span class=${isError ? "pg-error cost" : "pg-hint cost"}>${text}</span>
  </li>`;
}

function ModelList() {
  const { models } = form.value;
  useModelFacts(models.map((each) => each.name));
  return html`<ul class="pg-list choices">
      ${models.map((model) => html`<${ModelItem} key=${model.name} model=${model} />`)}
    </ul>
    <form class="add-model" onSubmit=${addModel}>
      <${Field}
        field=${{
          name: "model",
          label: "Another model",
          placeholder: "user/name",
          maxLength: 200,
          suggestions: modelNames.value,
        }}
        value=${newName.value}
        error=${nameError.value}
        onInput=${(name) => {
          newName.value = name;
          nameError.value = "";
        }}
      />
      <button type="submit" class="pg-button">Add</button>
    </form>`;
}

function Legend() {
  const { settings } = results.value;
  return html`<details class="legend">
    <summary>How to read this table</summary>
    <dl>
      ${READING.map(([term, text]) => [
        html`<dt key=${term}>${term}</dt>`,
        html`<dd key=${term + " text"}>${text}</dd>`,
      ])}
    </dl>
    ${settings?.caption && html`<p class="pg-hint">${settings.caption}</p>`}
  </details>`;
}

/** Whether the results are those of another model than the open one. */
const isOutdated = () => {
  const { settings, subject: of, origin } = results.value;
  return Boolean(settings && !origin && of && subject.value && of !== subject.value);
};

function Results() {
  const { settings, examples, origin } = results.value,
    isOld = isOutdated();
  return html`<section class="main-part" aria-label="Benchmark results">
    <div class="job">
      <${JobProgress} job=${job} doneText=${isOld ? "" : describeResults(results.value)} />
    </div>
    ${
      isOld &&
      html`<p class="pg-note other-model" role="status">
        These results are of <b>${settings.request?.name ?? "another model"}</b>. Press Run
        evaluation for <b>${selectedModel.value?.name}</b>.
      </p>`
    }
    ${origin && html`<p class="pg-quiet">Recorded: ${origin}</p>`}
    <p class="pg-hint fairness">${FAIRNESS_NOTE}</p>
    <div class=${isOld ? "pg-old" : ""}>
      <${ResultTable} job=${job} onRetry=${retryModel} />
    </div>
    ${
      Object.keys(examples).length > 0 &&
      html`<${Legend} />
        <header class="pg-section-header results-header">
          <h3>Results by example</h3>
          <span class="pg-spacer"></span>
          <${Button} onClick=${() => downloadJson("compare.json", exportData(results.value))}>
            All data (JSON)
          <//>
        </header>
        <${Examples} />`
    }
  </section>`;
}

export function Benchmark() {
  useRecorded(
    "benchmark",
    () => !results.value.settings && !job.isStored && !job.isBusy,
    ({ rows, request, machine }) => {
      results.value = { ...addRows(emptyResults(), rows, request), origin: machine };
    },
  );
  const { models, ...numbers } = form.value,
    { settings, origin } = results.value,
    isRepeated = settings && !isOutdated();
  return html`<div class="pg-columns of-benchmark" data-status=${job.state.value.status}>
    <section class="side" aria-label="Benchmark settings">
      <h3>Compare with</h3>
      <${ModelList} />
      <${Form}
        fields=${FIELDS}
        values=${numbers}
        onInput=${form.set}
        onSubmit=${runBenchmark}
        submitLabel=${origin ? "Run it here" : isRepeated ? "Run again" : "Run evaluation"}
        submitClass="run"
        isBusy=${isActive(job.state.value)}
        ><p class="pg-hint total-cost">${describeDownloads(listSelected())}</p><//
      >
    </section>
    <${Results} />
  </div>`;
}
