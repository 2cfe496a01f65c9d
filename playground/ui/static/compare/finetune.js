import { NO_RESPONSE } from "../shared/api.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatMessage,
  formatPercent,
} from "../shared/format.js";
import { el } from "../shared/dom.js";
import { EXACT_MATCH_TITLE } from "../shared/strings.js";
import { MAX_MODELS, runBenchmark, saveBenchmarkForm } from "./benchmark.js";
import { createJobRunner, runBackgroundJob } from "./jobs.js";
import { paintLines, seriesColor } from "./learning_curves.js";
import { createModelPicker, loadModelFacts } from "./pretrained_models.js";
import { state } from "./state.js";
import { loadLocal, saveLocal } from "./storage.js";
import { root } from "./view.js";
import { selectView } from "./views.js";

// Fine-tuning of a pretrained model on the task of the user's model, by the same Trainer
// (finetuning/job.py). The benchmark accepts the resulting model.
const finetuneState = { what: null, memory: null, steps: [], result: null };
const MEMORY_PARTS = [
  ["weights", "weights"],
  ["gradients", "gradients"],
  ["optimizer_state", "Adam states"],
  ["activations", "activations for the backward pass"],
];
let finetuneForm, finetuneJob;

export const finetuneSpec = {
  title: "Fine-tune",
  explain:
    "Fine-tunes a pretrained model on the task of your model for a few steps. Then compare " +
    "the few-shot, the fine-tuned and the from-scratch model in the benchmark.",
  build(box) {
    const form = loadLocal("finetune") || {};
    finetuneForm = {
      field: createModelPicker({
        value: typeof form.model === "string" && form.model ? form.model : "gpt2",
        change: planFinetune,
      }),
      fields: {},
      cost: el("p", { className: "hint cost" }),
      go: el("button", {
        type: "submit",
        className: "quiet main tune-it",
        textContent: "Fine-tune",
      }),
      caption: el("p", {
        className: "fairness",
        textContent:
          "Evaluated on held-out sequences without few-shot examples. Step 0 is the " +
          "pretrained model. Cancel keeps the current weights.",
      }),
      score: el("canvas", { className: "tuned-score" }),
      loss: el("canvas", { className: "tuned-loss" }),
      words: el("p", { className: "verdict" }),
      benchmark: el("button", {
        type: "button",
        className: "quiet main benchmark-three",
        textContent: "Compare all three in the benchmark",
        hidden: true,
      }),
    };
    finetuneJob = createJobRunner("finetune", {
      onStart: onFinetuneStart,
      onRows: onFinetuneRows,
      onFinish: onFinetuneFinish,
    });
    const numbers = [
      ["steps", "Steps", 100, 1, 5000, 1, "Number of weight updates"],
      [
        "learning_rate",
        "Learning rate",
        0.0002,
        1e-8,
        0.1,
        "any",
        "Peak value; warm-up over the first tenth of the steps, then cosine decay",
      ],
      ["batch_size", "Batch size", 16, 1, 256, 1, "Larger batches need more memory"],
      ["n", "Evaluation size", 64, 1, 1000, 1, "Held-out sequences per evaluation"],
    ];
    const form2 = el(
      "form",
      { className: "numbers" },
      ...numbers.map(([name, label, value, min, max, step, title]) => {
        const input = el("input", {
          type: "number",
          min,
          max,
          step,
          value: typeof form[name] === "number" ? form[name] : value,
          required: true,
          className: "of-" + name,
        });
        input.addEventListener("input", () => {
          saveFinetuneForm();
          clearTimeout(finetuneForm.timer);
          finetuneForm.timer = setTimeout(planFinetune, 500);
        });
        finetuneForm.fields[name] = input;
        return el("label", { title }, label, input);
      }),
      finetuneForm.cost,
      finetuneForm.go,
    );
    form2.addEventListener("submit", async (event) => {
      event.preventDefault();
      saveFinetuneForm();
      await state.backgroundQueue;
      finetuneJob.run("finetune", finetuneRequest(), state.subject);
    });
    finetuneForm.benchmark.addEventListener("click", benchmarkFinetuned);
    for (const [canvas, text] of [
      [finetuneForm.score, "Exact match by training step"],
      [finetuneForm.loss, "Loss by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const chartBox = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Fine-tuning settings" },
          el("h3", { textContent: "Model to fine-tune" }),
          el("div", { className: "field-box" }, finetuneForm.field.box),
          form2,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          finetuneJob.line,
          finetuneForm.caption,
          el(
            "div",
            { className: "charts" },
            chartBox(EXACT_MATCH_TITLE, finetuneForm.score),
            chartBox("Loss (logarithmic)", finetuneForm.loss),
          ),
          finetuneForm.words,
          finetuneForm.benchmark,
        ),
      ),
    );
    const before = loadLocal("tuned");
    if (before && before.result) Object.assign(finetuneState, before);
    renderFinetuneSummary();
  },
  fields() {
    saveFinetuneForm();
    return ["finetune"];
  },
  show() {
    finetuneForm.field.loadFacts();
    if (!finetuneForm.planned) planFinetune();
    paintFinetune();
  },
  chosen() {
    finetuneForm.planned = "";
    if (state.view === "finetune") planFinetune();
  },
};
const finetuneRequest = () => ({
  model: finetuneForm.field.value,
  ...Object.fromEntries(
    Object.entries(finetuneForm.fields).map(([name, input]) => [
      name,
      name === "learning_rate" ? +input.value : Math.round(+input.value),
    ]),
  ),
});
function saveFinetuneForm() {
  saveLocal("finetune", finetuneRequest());
}

// The required memory, before any download.
async function planFinetune() {
  const request = finetuneRequest(),
    requestKey = JSON.stringify([state.subject, request]);
  if (!request.model || !state.owner || finetuneForm.planned === requestKey || finetuneJob.busy)
    return;
  finetuneForm.planned = requestKey;
  let response;
  try {
    response = await runBackgroundJob("finetune-plan", request, () => {}, state.subject);
  } catch (error) {
    response = {
      error: error.isServerMessage ? error.message : NO_RESPONSE,
    };
  }
  if (finetuneForm.planned !== requestKey) return;
  finetuneForm.cost.classList.toggle("error", Boolean(response.error) || !response.fits);
  if (response.error) {
    finetuneForm.cost.textContent = formatMessage(response.error);
    return;
  }
  finetuneForm.cost.textContent =
    "Training needs about " +
    formatBytes(response.bytes) +
    " of memory" +
    (response.parts.activations ? "" : " plus activations") +
    "; " +
    formatBytes(response.free_bytes) +
    " are free" +
    (response.fits ? "." : ", which is not enough. Select a smaller model or stop a run.");
  finetuneForm.cost.title = MEMORY_PARTS.filter(([key]) => response.parts[key])
    .map(([key, label]) => label + " " + formatBytes(response.parts[key]))
    .join(", ");
}

function onFinetuneStart(request) {
  finetuneState.next = request;
  finetuneForm.go.disabled = true;
  renderFinetuneSummary();
}
function onFinetuneRows(rows) {
  for (const row of rows) {
    if (row.kind === "memory")
      // the previous curves stay until here
      Object.assign(finetuneState, {
        what: finetuneState.next,
        memory: row,
        steps: [],
        result: null,
      });
    else if (row.kind === "step") finetuneState.steps.push(row);
  }
  renderFinetuneSummary();
  paintFinetune();
}
function onFinetuneFinish(response) {
  finetuneForm.go.disabled = false;
  // also of a cancelled job, after its weights are saved
  if (response.result) finetuneState.result = response.result;
  if (finetuneState.result)
    saveLocal("tuned", {
      what: finetuneState.what,
      memory: finetuneState.memory,
      steps: finetuneState.steps
        .filter(
          (row, i) =>
            finetuneState.steps.length < 400 ||
            row.eval_size ||
            i % Math.ceil(finetuneState.steps.length / 400) === 0,
        )
        .map(({ step, loss, exact_match, eval_size }) => ({ step, loss, exact_match, eval_size })),
      result: finetuneState.result,
    });
  renderFinetuneSummary();
  paintFinetune();
  // The model is on this machine now.
  if (finetuneState.what) loadModelFacts([finetuneState.what.model], true);
  finetuneForm.planned = "";
  planFinetune();
  if (response.status === "done")
    return (
      "Trained " +
      formatCount(response.result.steps, "step") +
      " in " +
      formatDuration(response.result.seconds) +
      "."
    );
}
const finetuneEvaluations = () =>
  finetuneState.steps.filter((row) => typeof row.exact_match === "number");
function renderFinetuneSummary() {
  const evaluations = finetuneEvaluations(),
    first = evaluations[0],
    last = evaluations[evaluations.length - 1],
    name = finetuneState.result
      ? finetuneState.result.from
      : finetuneState.what
        ? finetuneState.what.model
        : "";
  finetuneForm.words.textContent =
    !first && finetuneJob.busy
      ? ""
      : !first
        ? "No fine-tuned model yet. Select a model and press Fine-tune."
        : name +
          ": exact match " +
          formatPercent(first.exact_match) +
          " before fine-tuning" +
          (last.step
            ? ", " + formatPercent(last.exact_match) + " after " + formatCount(last.step, "step")
            : "") +
          ", of " +
          formatCount(first.eval_size, "held-out sequence") +
          "." +
          (finetuneState.result
            ? " It is saved as " +
              finetuneState.result.model +
              (finetuneState.result.note ? "; " + finetuneState.result.note : "") +
              "."
            : "");
  finetuneForm.benchmark.hidden = !finetuneState.result;
}
function paintFinetune() {
  if (!finetuneForm.score.clientWidth) return;
  root.style.setProperty("--hue-0", seriesColor(0));
  const maxValue = Math.max(10, finetuneState.what ? finetuneState.what.steps : 0),
    losses = finetuneState.steps
      .filter((row) => typeof row.loss === "number")
      .map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
  paintLines(
    finetuneForm.score,
    [finetuneEvaluations().map((row) => [row.step, row.exact_match])],
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [1, "100 %"],
    ],
    maxValue,
  );
  const low = Math.floor(Math.min(-1, ...losses.map(([, v]) => v))),
    high = Math.max(0.5, ...losses.map(([, v]) => v)),
    ticks = [];
  for (let e = low; e <= high; e++) ticks.push([e, String(+(10 ** e).toPrecision(1))]);
  paintLines(finetuneForm.loss, [losses], [low, high + 0.1], ticks, maxValue);
  finetuneForm.score.drawn = finetuneEvaluations(); // tests read this property
}
// Open the benchmark with the pretrained model (few-shot), the fine-tuned model and the model from
// scratch.
function benchmarkFinetuned() {
  const both = [finetuneState.result.from, finetuneState.result.model],
    others = state.benchmarkForm.models
      .filter((each) => !both.includes(each.name))
      .map((each) => ({ ...each, on: false }));
  state.benchmarkForm.models = [...both.map((name) => ({ name, on: true })), ...others].slice(
    0,
    MAX_MODELS,
  );
  saveBenchmarkForm();
  selectView("table");
  runBenchmark();
}
