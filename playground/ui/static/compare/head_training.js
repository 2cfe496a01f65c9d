import { formatBytes, formatCount, formatDuration, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { inferenceView, MAX_CSV_BYTES, SAMPLE_CSV, selectTask } from "./inference.js";
import {
  createBarList,
  createInferenceForm,
  createNotes,
  createTextBox,
  toInteger,
} from "./inference_form.js";
import { paintLines } from "./learning_curves.js";

export function createTrainHeadForm(name) {
  const form = createInferenceForm(name, {
    title: "Train a head",
    about: "Trains a new classification head on labelled texts",
    button: "Train",
    kind: "train-classifier",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      [
        "csv",
        "Labelled texts, as CSV with the columns text and label",
        Object.assign(createTextBox(SAMPLE_CSV, 9), { maxLength: MAX_CSV_BYTES, wrap: "off" }),
      ],
      [
        "sentence",
        "Test sentence",
        el("input", { type: "text", value: "a good film", required: true, maxLength: 1000 }),
      ],
      [
        "train",
        "Train",
        el("select", {}, new Option("all weights", "all"), new Option("head only", "head")),
        "Head only is faster and needs less memory",
      ],
      [
        "epochs",
        "Epochs",
        el("input", { type: "number", min: 1, max: 100, step: 1, placeholder: "auto" }),
        "Number of passes over the texts. If empty, training takes about 60 steps",
      ],
      [
        "learning_rate",
        "Learning rate",
        el("input", { type: "number", min: 1e-7, max: 0.1, step: "any", placeholder: "default" }),
        "If empty: 5e-5, or 3e-3 for head only",
      ],
    ],
    buildRequest: ({ fields, inputs }) => ({
      model: fields[0].value,
      csv: inputs.csv.value,
      sentence: inputs.sentence.value,
      train: inputs.train.value,
      ...(inputs.epochs.value ? { epochs: toInteger(inputs.epochs) } : {}),
      ...(inputs.learning_rate.value ? { learning_rate: +inputs.learning_rate.value } : {}),
    }),
    empty:
      "Curves of the accuracy and the loss. One fifth of the texts is held out. The test " +
      "sentence is classified before and after training.",
    createExtraFields(form) {
      const fileInput = el("input", { type: "file", accept: ".csv,text/csv", className: "unseen" }),
        openButton = el("button", {
          type: "button",
          className: "quiet open-csv",
          textContent: "Open a CSV file",
        }),
        errorText = el("span", { className: "takes error" });
      openButton.addEventListener("click", () => fileInput.click());
      fileInput.setAttribute("aria-label", "A CSV file");
      fileInput.tabIndex = -1;
      fileInput.addEventListener("change", async () => {
        const file = fileInput.files[0];
        fileInput.value = "";
        errorText.textContent =
          file && file.size > MAX_CSV_BYTES
            ? file.name +
              " is too large. A CSV file may have at most " +
              formatBytes(MAX_CSV_BYTES) +
              " and 2,000 rows."
            : "";
        if (!file || errorText.textContent) return;
        form.inputs.csv.value = await file.text();
        form.remember();
      });
      return el("div", { className: "from-file" }, openButton, fileInput, errorText);
    },
    onRows(form, rows) {
      if (form.isNewJob) {
        form.isNewJob = false;
        form.metrics = [];
        form.result = null;
      }
      form.metrics.push(...rows);
      paintTraining(form);
    },
    onFinish(form, response) {
      if (response.status !== "done") return "";
      form.result = response.result;
      paintTraining(form);
      return (
        "Trained " +
        formatCount(response.result.steps, "step") +
        " in " +
        formatDuration(response.result.seconds)
      );
    },
  });
  form.draw = () => {
    if (form.metrics) paintTraining(form);
  };
  return form;
}
function paintTraining(form) {
  if (!form.score) {
    Object.assign(form, {
      score: el("canvas", { className: "head-score" }),
      loss: el("canvas", { className: "head-loss" }),
      results: el("div"),
    });
    for (const [canvas, text] of [
      [form.score, "Accuracy on held-out texts by step"],
      [form.loss, "Loss by step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const createFigure = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    form.out.replaceChildren(
      el(
        "div",
        { className: "charts" },
        createFigure("Accuracy on held-out texts", form.score),
        createFigure("Loss (logarithmic)", form.loss),
      ),
      form.results,
    );
  }
  const latest = form.metrics[form.metrics.length - 1];
  if (!latest) return;
  if (form.score.clientWidth) {
    const lastStep = Math.max(10, latest.step),
      losses = form.metrics
        .filter((row) => row.loss)
        .map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
    paintLines(
      form.score,
      [form.metrics.map((row) => [row.step, row.held_out_accuracy])],
      [0, 1],
      [
        [0, "0"],
        [0.5, "50 %"],
        [1, "100 %"],
      ],
      lastStep,
    );
    const low = Math.floor(Math.min(-1, ...losses.map(([, logLoss]) => logLoss))),
      high = Math.max(0.5, ...losses.map(([, logLoss]) => logLoss)),
      ticks = [];
    for (let exponent = low; exponent <= high; exponent++)
      ticks.push([exponent, String(+(10 ** exponent).toPrecision(1))]);
    paintLines(form.loss, [losses], [low, high + 0.1], ticks, lastStep);
    form.score.drawn = form.metrics; // tests read this property
  }
  const { result } = form;
  if (!result) {
    form.results.replaceChildren(
      el("p", {
        className: "verdict",
        textContent:
          "Step " +
          latest.step +
          ": " +
          formatPercent(latest.held_out_accuracy) +
          " of " +
          formatCount(latest.n, "held-out text") +
          " correct.",
      }),
    );
    return;
  }
  if (form.renderedResult === result) return;
  form.renderedResult = result;
  const heldOut = result.held_out,
    createPrediction = (title, labels) =>
      el(
        "div",
        {},
        el("h4", { textContent: title }),
        createBarList(
          labels.map(({ label, probability }, rank) => [
            label,
            probability,
            { chosen: rank === 0 },
          ]),
        ),
      );
  const classifyButton = el("button", {
    type: "button",
    className: "quiet",
    textContent: "Classify another text",
  });
  classifyButton.addEventListener("click", () => {
    const classifyForm = inferenceView.forms.classify;
    classifyForm.fields[0].value = result.folder;
    classifyForm.inputs.text.value = result.sentence;
    classifyForm.remember();
    selectTask("classify");
    classifyForm.run();
  });
  form.results.replaceChildren(
    el("p", {
      className: "verdict",
      textContent:
        "Held out: " +
        heldOut.n_correct +
        " of " +
        heldOut.n +
        " correct, " +
        formatPercent(heldOut.accuracy) +
        ", 95 % interval " +
        formatPercent(heldOut.low) +
        " to " +
        formatPercent(heldOut.high) +
        ". Baselines: random label " +
        formatPercent(result.chance) +
        ", most frequent label " +
        formatPercent(result.majority_fraction) +
        ".",
    }),
    el("p", {
      className: "hint",
      textContent: "“" + result.sentence + "”, before and after training:",
    }),
    el(
      "div",
      { className: "charts" },
      createPrediction("Before: " + result.before.note, result.before.labels),
      createPrediction(
        "After " +
          formatCount(result.steps, "step") +
          " on " +
          formatCount(result.training_rows, "text"),
        result.after.labels,
      ),
    ),
    el("p", {
      className: "hint",
      textContent:
        formatCount(result.trained_parameters, "parameter") +
        " trained; about " +
        formatBytes(result.memory_estimate) +
        " of memory.",
    }),
    ...createNotes(result.notes),
    ...(result.folder ? [classifyButton] : []),
  );
}
