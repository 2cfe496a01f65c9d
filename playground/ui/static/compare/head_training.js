// Training a head.
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
  const part = createInferenceForm(name, {
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
        "Passes over the texts; if empty, about 60 steps",
      ],
      [
        "learning_rate",
        "Learning rate",
        el("input", { type: "number", min: 1e-7, max: 0.1, step: "any", placeholder: "default" }),
        "If empty: 5e-5, or 3e-3 for head only",
      ],
    ],
    what: ({ fields, inputs }) => ({
      model: fields[0].value,
      csv: inputs.csv.value,
      sentence: inputs.sentence.value,
      train: inputs.train.value,
      ...(inputs.epochs.value ? { epochs: toInteger(inputs.epochs) } : {}),
      ...(inputs.learning_rate.value ? { learning_rate: +inputs.learning_rate.value } : {}),
    }),
    empty:
      "The training curves. One fifth of the texts is held out; the test sentence is " +
      "classified before and after training.",
    after(part) {
      const file = el("input", { type: "file", accept: ".csv,text/csv", className: "unseen" }),
        open = el("button", {
          type: "button",
          className: "quiet open-csv",
          textContent: "Open a CSV file",
        }),
        problem = el("span", { className: "takes error" });
      open.addEventListener("click", () => file.click());
      file.setAttribute("aria-label", "A CSV file");
      file.tabIndex = -1;
      file.addEventListener("change", async () => {
        const chosen = file.files[0];
        file.value = "";
        problem.textContent =
          chosen && chosen.size > MAX_CSV_BYTES
            ? chosen.name +
              " is larger than " +
              formatBytes(MAX_CSV_BYTES) +
              "; the limit is 2,000 rows."
            : "";
        if (!chosen || problem.textContent) return;
        part.inputs.csv.value = await chosen.text();
        part.remember();
      });
      return el("div", { className: "from-file" }, open, file, problem);
    },
    onRows(part, rows) {
      if (part.fresh) {
        part.fresh = false;
        part.metrics = [];
        part.result = null;
      }
      part.metrics.push(...rows);
      paintTraining(part);
    },
    onFinish(part, response) {
      if (response.status !== "done") return "";
      part.result = response.result;
      paintTraining(part);
      return (
        "Trained " +
        formatCount(response.result.steps, "step") +
        " in " +
        formatDuration(response.result.seconds)
      );
    },
  });
  part.draw = () => {
    if (part.metrics) paintTraining(part);
  };
  return part;
}
function paintTraining(part) {
  if (!part.score) {
    Object.assign(part, {
      score: el("canvas", { className: "head-score" }),
      loss: el("canvas", { className: "head-loss" }),
      results: el("div"),
    });
    for (const [canvas, text] of [
      [part.score, "Accuracy on held-out texts by step"],
      [part.loss, "Loss by step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const chart = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    part.out.replaceChildren(
      el(
        "div",
        { className: "charts" },
        chart("Accuracy on held-out texts", part.score),
        chart("Loss (logarithmic)", part.loss),
      ),
      part.results,
    );
  }
  const last = part.metrics[part.metrics.length - 1];
  if (!last) return;
  if (part.score.clientWidth) {
    const maxValue = Math.max(10, last.step),
      losses = part.metrics
        .filter((row) => row.loss)
        .map((row) => [row.step, Math.log10(Math.max(row.loss, 1e-6))]);
    paintLines(
      part.score,
      [part.metrics.map((row) => [row.step, row.held_out_accuracy])],
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
    paintLines(part.loss, [losses], [low, high + 0.1], ticks, maxValue);
    part.score.drawn = part.metrics; // tests read this property
  }
  const { result } = part;
  if (!result) {
    part.results.replaceChildren(
      el("p", {
        className: "verdict",
        textContent:
          "Step " +
          last.step +
          ": " +
          formatPercent(last.held_out_accuracy) +
          " of " +
          formatCount(last.n, "held-out text") +
          " correct.",
      }),
    );
    return;
  }
  if (part.results.of === result) return;
  part.results.of = result;
  const held = result.held_out,
    createExampleRow = (title, rows) =>
      el(
        "div",
        {},
        el("h4", { textContent: title }),
        createBarList(rows.map((each, i) => [each.label, each.probability, { chosen: i === 0 }])),
      );
  const more = el("button", {
    type: "button",
    className: "quiet",
    textContent: "Classify another text",
  });
  more.addEventListener("click", () => {
    const to = inferenceView.parts.classify;
    to.fields[0].value = result.folder;
    to.inputs.text.value = result.sentence;
    to.remember();
    selectTask("classify");
    to.run();
  });
  part.results.replaceChildren(
    el("p", {
      className: "verdict",
      textContent:
        "Held out: " +
        held.n_correct +
        " of " +
        held.n +
        " correct, " +
        formatPercent(held.accuracy) +
        ", 95 % interval " +
        formatPercent(held.low) +
        " to " +
        formatPercent(held.high) +
        ". Chance is " +
        formatPercent(result.chance) +
        ", always the most frequent label " +
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
      createExampleRow("Before: " + result.before.note, result.before.labels),
      createExampleRow(
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
    ...(result.folder ? [more] : []),
  );
}
