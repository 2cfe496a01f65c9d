// Fine-tuning of a pretrained model on the task of the selected model
// (pretrained/finetuning/job.py). The benchmark accepts the resulting model.
import { Button } from "../shared/components/buttons.js";
import { html, useEffect, useMemo } from "../vendor/preact.js";
import { toSeries } from "../shared/chart_data.js";
import { LineChart } from "../shared/components/line_chart.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatPercent,
  formatWholePercent,
} from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { store } from "../shared/store.js";
import { EXACT_MATCH_TITLE, PEAK_LEARNING_RATE } from "../shared/strings.js";
import { benchmarkModels } from "./benchmark.js";
import { runQuery } from "./jobs.js";
import { createPipeline, numberInput, PRETRAINED_MODEL } from "./pipeline.js";
import { loadLocal, saveLocal, subject } from "./state.js";

const MAX_SAVED_STEPS = 400;
const PLAN_DELAY_MS = 500;
const MEMORY_PARTS = [
  ["weights", "weights"],
  ["gradients", "gradients"],
  ["optimizer_state", "Adam states"],
  ["activations", "activations for the backward pass"],
];
const SCORE_OPTIONS = {
  label: EXACT_MATCH_TITLE,
  yRange: [0, 1],
  formatY: formatPercent,
  formatTick: formatWholePercent,
};
const LOSS_OPTIONS = { label: "Loss", isLog: true, yRange: /** @type {any} */ ([null, null]) };
const plan = new Resource((request) => runQuery("finetune-plan", request, subject.value));

const isStep = (row) => row.kind !== "memory";

/** Return the steps to store: all evaluations, and at most MAX_SAVED_STEPS others. */
export function thinSteps(rows) {
  const steps = rows.filter(isStep),
    stride = Math.ceil(steps.length / MAX_SAVED_STEPS);
  return steps
    .filter((row, i) => row.eval_size || i % stride === 0)
    .map(({ step, loss, exact_match, eval_size }) => ({ step, loss, exact_match, eval_size }));
}

export function describePlan({ bytes, free_bytes: free, fits, parts }) {
  return (
    `Needs about ${formatBytes(bytes)} of memory${parts.activations ? "" : " plus activations"}; ` +
    `${formatBytes(free)} are free` +
    (fits ? "." : ", which is not enough. Select a smaller model or stop a run.")
  );
}

export function describeTraining({ request, rows, result }) {
  const evaluations = rows.filter((row) => typeof row.exact_match === "number"),
    first = evaluations[0],
    last = evaluations.at(-1);
  if (!first) return "";
  const after = last.step
      ? `, ${formatPercent(last.exact_match)} after ${formatCount(last.step, "step")}`
      : "",
    saved = result
      ? ` It is saved as ${result.model}${result.note ? "; " + result.note : ""}.`
      : "";
  return (
    `${result?.from ?? request.model}: exact match ${formatPercent(first.exact_match)} before ` +
    `fine-tuning${after}, of ${formatCount(first.eval_size, "held-out sequence")}.${saved}`
  );
}

function Plan() {
  const value = plan.data.value,
    error = plan.error.value,
    owner = store.owner.value,
    request = pipeline.buildRequest(),
    key = JSON.stringify([subject.value, request, pipeline.job.isBusy]);
  useEffect(() => {
    if (owner && request.model && !pipeline.job.isBusy) plan.loadAfter(PLAN_DELAY_MS, request);
  }, [key, owner]);
  if (error) return html`<p class="pg-hint cost">${error}</p>`;
  if (!value) return html`<p class="pg-hint cost">Computing the required memory…</p>`;
  const title = MEMORY_PARTS.filter(([part]) => value.parts[part])
    .map(([part, label]) => `${label} ${formatBytes(value.parts[part])}`)
    .join(", ");
  return html`<p class=${(value.fits ? "pg-hint" : "pg-error") + " cost"} title=${title}>
    ${describePlan(value)}
  </p>`;
}

function Training({ result, rows, request }) {
  const read = (label, key) => {
      const points = rows.filter((row) => isStep(row) && typeof row[key] === "number");
      return toSeries(
        label,
        points.map((row) => [row.step, row[key]]),
        0,
        { hasPoints: points.length < 30 },
      );
    },
    scores = useMemo(() => [read("exact match", "exact_match")], [rows]),
    losses = useMemo(() => [read("loss", "loss")], [rows]);
  return html`<div class="pg-halves pg-charts">
      <${LineChart} options=${SCORE_OPTIONS} series=${scores} />
      <${LineChart} options=${LOSS_OPTIONS} series=${losses} />
    </div>
    <p class="verdict">${describeTraining({ request, rows, result })}</p>
    ${
      result &&
      html`<p class="pg-buttons">
        <${Button}
          class="compare-in-benchmark"
          title="The pretrained model with few-shot examples, the fine-tuned model, and yours"
          onClick=${() => benchmarkModels([result.from, result.model])}
        >
          Compare all three in the benchmark
        <//>
      </p>`
    }`;
}

const pipeline = createPipeline("finetune", {
  kind: "finetune",
  formName: "finetune",
  hasRows: true,
  needsSubject: true,
  fields: [
    { name: "model", label: PRETRAINED_MODEL, value: "gpt2" },
    numberInput("steps", "Steps", 100, 1, 5000),
    numberInput("learning_rate", PEAK_LEARNING_RATE, 0.0002, 1e-8, 0.1, { isInteger: false }),
    numberInput("batch_size", "Batch size", 16, 1, 256),
    numberInput("n", "Held-out sequences", 64, 1, 1000),
  ],
  submitLabel: "Fine-tune",
  emptyText:
    "the exact match and the loss of the pretrained model as it learns. Step 0 is the pretrained " +
    "model, evaluated without few-shot examples. Cancel keeps the current weights.",
  describe: ({ steps, seconds }) =>
    `Trained ${formatCount(steps, "step")} in ${formatDuration(seconds)}.`,
  onEnd: () => {
    const { result, request, rows } = pipeline;
    if (result.value)
      saveLocal("tuned", {
        request: request.value,
        steps: thinSteps(rows.value),
        result: result.value,
      });
  },
  Result: Training,
  Controls: Plan,
});
export const { View: Finetuning } = pipeline;

const stored = loadLocal("tuned");
if (stored?.result && Array.isArray(stored.steps)) {
  pipeline.result.value = stored.result;
  pipeline.request.value = stored.request;
  pipeline.rows.value = stored.steps;
}
