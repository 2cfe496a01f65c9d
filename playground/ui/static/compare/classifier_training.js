// Training of a classification head on labeled texts (finetuning/classifier.py).
import { html, signal, useMemo } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { FileButton } from "../shared/components/file_button.js";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatInteger,
  formatPercent,
} from "../shared/format.js";
import { LEARNING_RATE } from "../shared/strings.js";
import { classify } from "./classification.js";
import {
  createPipeline,
  formatProbability,
  modelInput,
  Notes,
  numberInput,
  textArea,
} from "./pipeline.js";
import { SAMPLE_TEXTS } from "./sample_texts.js";
import { section } from "./state.js";
import { toSeries, TrainingCharts } from "./training_charts.js";

const MAX_CSV_BYTES = 1_000_000; // equal to the limit of finetuning/labeled_texts.py
const SCORE_LABEL = "Accuracy on held-out texts";
const fileError = signal("");

/** @param {File} file */
async function openFile(file) {
  const isTooLarge = file.size > MAX_CSV_BYTES;
  fileError.value = isTooLarge
    ? `${file.name} is too large. A CSV file may have at most ${formatBytes(MAX_CSV_BYTES)} and ` +
      "2,000 rows."
    : "";
  if (!isTooLarge) pipeline.values.set("csv", await file.text());
}

const OpenButton = () =>
  html`<p class="pg-buttons">
    <${FileButton} label="Open a CSV file" accept=".csv,text/csv" onFile=${openFile} />
    ${fileError.value && html`<span class="pg-error" role="alert">${fileError.value}</span>`}
  </p>`;

/** Describe the accuracy after training, with its baselines. */
export function describeAccuracy({ held_out: heldOut, chance, majority_fraction: majority }) {
  return (
    `Held out: ${heldOut.n_correct} of ${heldOut.n} correct, ${formatPercent(heldOut.accuracy)}, ` +
    `95 % interval ${formatPercent(heldOut.low)} to ${formatPercent(heldOut.high)}. Baselines: ` +
    `random label ${formatPercent(chance)}, most frequent label ${formatPercent(majority)}.`
  );
}

function Prediction({ title, labels }) {
  return html`<div>
    <h4>${title}</h4>
    <${BarList}
      label=${title}
      format=${formatProbability}
      items=${labels.map(({ label, probability }) => ({ label, value: probability }))}
    />
  </div>`;
}

function Outcome({ result }) {
  const classifyAnother = () => {
    section.value = "classify";
    classify(result.folder, result.sentence);
  };
  return html`<p class="verdict">${describeAccuracy(result)}</p>
    <p class="pg-hint">“${result.sentence}”, before and after training:</p>
    <div class="charts">
      <${Prediction} title=${"Before: " + result.before.note} labels=${result.before.labels} />
      <${Prediction}
        title=${
          `After ${formatCount(result.steps, "step")} on ` +
          formatCount(result.training_rows, "text")
        }
        labels=${result.after.labels}
      />
    </div>
    <p class="pg-hint">
      ${
        `${formatCount(result.trained_parameters, "parameter")} trained; about ` +
        `${formatBytes(result.memory_estimate)} of memory.`
      }
    </p>
    <${Notes} notes=${result.notes} />
    ${
      result.folder &&
      html`<p class="pg-buttons">
        <button type="button" class="pg-button" onClick=${classifyAnother}>
          Classify another text
        </button>
      </p>`
    }`;
}

function Training({ result, rows }) {
  const latest = rows[rows.length - 1],
    scores = useMemo(
      () => [toSeries("accuracy", rows, (row) => [row.step, row.held_out_accuracy])],
      [rows],
    ),
    losses = useMemo(() => [toSeries("loss", rows, (row) => [row.step, row.loss])], [rows]);
  return html`<${TrainingCharts} scoreLabel=${SCORE_LABEL} scores=${scores} losses=${losses} /> ${
      result
        ? html`<${Outcome} result=${result} />`
        : latest &&
          html`<p class="verdict">
            ${
              `Step ${formatInteger(latest.step)}: ${formatPercent(latest.held_out_accuracy)} of ` +
              `${formatCount(latest.n, "held-out text")} correct.`
            }
          </p>`
    }`;
}

const pipeline = createPipeline("train", {
  kind: "train-classifier",
  hasRows: true,
  fields: [
    modelInput("bert-base-uncased"),
    textArea("csv", "Labeled texts, as CSV with the columns text and label", SAMPLE_TEXTS, {
      maxLength: MAX_CSV_BYTES,
    }),
    {
      name: "sentence",
      label: "Test sentence",
      value: "a good film",
      isRequired: true,
      maxLength: 1000,
    },
    {
      name: "train",
      label: "Weights to train",
      value: "all",
      type: "select",
      options: [
        { value: "all", label: "all weights" },
        { value: "head", label: "head only (faster, less memory)" },
      ],
    },
    numberInput("epochs", "Epochs", "", 1, 100, {
      isRequired: false,
      placeholder: "for about 60 steps",
    }),
    numberInput("learning_rate", LEARNING_RATE, "", 1e-7, 0.1, {
      isRequired: false,
      isInteger: false,
      placeholder: "5e-5; head only 3e-3",
    }),
  ],
  submitLabel: "Train",
  emptyText:
    "curves of the accuracy and the loss. One fifth of the texts is held out. The test sentence " +
    "is classified before and after training.",
  describe: ({ steps, seconds }) =>
    `Trained ${formatCount(steps, "step")} in ${formatDuration(seconds)}.`,
  Result: Training,
  Controls: OpenButton,
});
export const { View: ClassifierTraining } = pipeline;
