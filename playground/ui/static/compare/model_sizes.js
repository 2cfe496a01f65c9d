// The sizes of well-known models beside the selected one (pretrained/model_facts.py).
import { html, signal, useEffect } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { formatInteger, formatNumber } from "../shared/format.js";
import { store } from "../shared/store.js";
import { CompareJob } from "./jobs.js";
import { selectedModel } from "./state.js";

const METHODS = { here: "this model", counted: "counted here", cited: "cited" };
const sizes = signal(/** @type {any} */ (null));
const job = new CompareJob("sizes", {
  isResumed: false,
  onEnd: (result) => (sizes.value = result ?? sizes.value),
});
let loadedFor = "";

function loadSizes({ subject, name, parameters }) {
  loadedFor = subject;
  job.start("model-sizes", { parameters, name: name.slice(0, 80) });
}

/** Format how many times larger a model is. */
export const formatRatio = (ratio) =>
  (ratio >= 10 ? formatInteger(Math.round(+ratio.toPrecision(2))) : formatNumber(ratio)) + " ×";

/** Return the powers of ten around the sizes. @returns {[number, number]} */
export function exponentRange(models) {
  const logs = models.map((each) => Math.log10(each.parameters));
  return [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))];
}

const powerOfTen = (exponent) =>
  "10" + String(exponent).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]);

function LogScale({ parameters, low, high }) {
  const position = (100 * (Math.log10(parameters) - low)) / (high - low);
  return html`<span class="log-scale" style=${{ "--decades": high - low }} aria-hidden="true">
    <i style=${{ left: position + "%" }}></i>
  </span>`;
}

const buildColumns = (low, high) => [
  {
    key: "name",
    label: "model",
    render: (row) =>
      html`<span class=${row.method === "here" ? "name own" : "name"}>${row.name}</span>`,
  },
  {
    key: "parameters",
    label: "parameters",
    isNumber: true,
    render: (row) => formatInteger(row.parameters),
  },
  {
    key: "scale",
    label: `${powerOfTen(low)} to ${powerOfTen(high)}`,
    isSortable: false,
    isOptional: true,
    render: (row) => html`<${LogScale} parameters=${row.parameters} low=${low} high=${high} />`,
  },
  {
    key: "ratio",
    label: "relative size",
    isNumber: true,
    render: (row) => (row.ratio === null ? "" : formatRatio(row.ratio)),
  },
  { key: "method", label: "method", isOptional: true, render: (row) => METHODS[row.method] },
  {
    key: "source",
    label: "source",
    isOptional: true,
    render: (row) => (row.method === "here" ? "" : row.source),
  },
];

/** Return the parts of GPT-3 with their total. */
export function withTotal(parts) {
  const sum = (key) => parts.reduce((total, row) => total + row[key], 0);
  return [
    ...parts,
    { part: "total", formula: "", by_formula: sum("by_formula"), counted: sum("counted") },
  ];
}

const integerColumn = (key, label) => ({
  key,
  label,
  isNumber: true,
  isSortable: false,
  render: (row) => formatInteger(row[key]),
});
const PART_COLUMNS = [
  { key: "part", label: "part", isSortable: false },
  { key: "formula", label: "shape", isSortable: false, isOptional: true },
  integerColumn("by_formula", "matrices alone"),
  integerColumn("counted", "counted here"),
];

const GptParts = ({ parts }) =>
  html`<section class="gpt-parts">
    <p class="pg-hint">
      GPT-3 by part, 96 layers of width 12,288. Matrices alone: rows times columns of every matrix,
      with a separate output layer. Counted here: the same sizes in GPT-2’s code, where the output
      layer is the table of the token embeddings. Two thirds of the parameters are in the
      feed-forward networks, one third is in attention.
    </p>
    <${DataTable}
      caption="GPT-3 by part"
      columns=${PART_COLUMNS}
      rows=${withTotal(parts)}
      rowKey=${(row) => row.part}
      csvName="gpt-3-parts"
    />
  </section>`;

export function ModelSizes() {
  const result = sizes.value,
    model = selectedModel.value;
  useEffect(() => {
    if (store.owner.value && model && loadedFor !== model.subject) loadSizes(model);
  }, [store.owner.value, model?.subject]);
  return html`<div class="part-sizes" data-status=${job.state.value.status}>
    <p class="pg-hint">
      Each line of the scale is a factor of ten. Counted here: built from the published
      configuration, without weights. Cited: as reported by the authors.
    </p>
    <${JobProgress} job=${job} />
    ${
      result &&
      html`<${DataTable}
        class="sizes"
        caption="Sizes of models"
        isCaptionHidden
        columns=${buildColumns(...exponentRange(result.models))}
        rows=${result.models}
        rowKey=${(row) => row.name}
        csvName="model-sizes"
      />`
    }
    ${result?.gpt3 && html`<${GptParts} parts=${result.gpt3} />`}
  </div>`;
}
