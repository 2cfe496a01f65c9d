// The results of the benchmark. pretrained/benchmark/job.py sends the rows; the newest of each
// counts.
import { Button } from "../shared/components/buttons.js";
import { html, signal } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import {
  formatBytes,
  formatCount,
  formatInteger,
  formatMessage,
  formatNumber,
  formatPercent,
} from "../shared/format.js";
import { isActive } from "../shared/job.js";
import { loadJson, saveText } from "../shared/storage.js";
import { describeError, isOutage, outage } from "./jobs.js";
/** @import { Column } from "../shared/types.js" */

const RESULTS_KEY = "transformer-playground-compare-table";
const MAX_RESULTS_LENGTH = 2_500_000;
const OWN_INDEX = 4; // of the row of the selected model; the baselines are before it

/** @typedef {ReturnType<typeof emptyResults>} Results */
export const emptyResults = () => ({
  request: /** @type {any} */ (null),
  settings: /** @type {any} */ (null),
  rows: /** @type {Record<string, any>} */ ({}),
  /** The examples with the predictions, by the ids of the rows. */
  examples: /** @type {Record<string, any[]>} */ ({}),
  subject: "",
  /** Where the results were recorded; empty if they are of this server. */
  origin: "",
});
export const results = signal(emptyResults());

export const isBaseline = (row) => row.description === "baseline";

/** Return the id of a row; a model that is tried again has its earlier one. */
const idOf = ({ index, model }) => (index > OWN_INDEX ? model : String(index));

/**
 * Return the results after more rows. The rows of another try are only those of its model.
 * @param {Results} before
 */
export function addRows(before, more, request) {
  let state = { ...before, rows: { ...before.rows }, examples: { ...before.examples } };
  for (const row of more) {
    const id = idOf(row);
    if (request.retry && row.model !== request.retry) continue;
    if (row.kind === "settings")
      state = { ...emptyResults(), request, settings: row, subject: request.of || "" };
    else if (row.kind === "model") state.rows[id] = row;
    else state.examples[id] = [...(row.number > 1 ? (state.examples[id] ?? []) : []), row];
  }
  return state;
}

/** Return [id, row] pairs: the selected model, the others in their order, then the baselines. */
export function sortedRows({ request, rows }) {
  const requested = request?.models ?? [];
  const rank = (row) => (isBaseline(row) ? requested.length + 1 : 1 + requested.indexOf(row.model));
  return Object.entries(rows).sort(([, x], [, y]) => rank(x) - rank(y) || x.index - y.index);
}

export const exportData = (state) => ({
  settings: state.settings,
  rows: sortedRows(state).map(([, { kind, index, finished, ...row }]) => row),
  examples: Object.values(state.examples).flat(),
});

export function saveResults() {
  const text = JSON.stringify(results.value);
  // The server keeps larger results for some time.
  saveText(RESULTS_KEY, text.length < MAX_RESULTS_LENGTH ? text : null);
}

export function loadResults() {
  const saved = loadJson(RESULTS_KEY),
    isComplete =
      saved?.settings && [saved.rows, saved.examples].every((each) => each?.constructor === Object);
  results.value = { ...emptyResults(), ...(isComplete ? saved : {}) };
}

// The table of the benchmark: the metrics of each model.

const METRICS = [
  {
    key: "exact_match",
    label: "exact match",
    help: "Fraction of examples without an error",
    count: (row) => row.n,
  },
  {
    key: "token_accuracy",
    label: "token accuracy",
    help: "Fraction of correct tokens, EOS included",
    count: (row) => row.n_tokens,
  },
];
const isMissing = (value) => value === null || value === undefined;

export function describeScore(row, { key, count }) {
  const [low, high] = [row[key + "_low"], row[key + "_high"]],
    interval = `; 95 % interval ${formatPercent(low)} to ${formatPercent(high)}`;
  return (
    formatPercent(row[key]) +
    (count(row) ? " of " + formatInteger(count(row)) : "") +
    (isMissing(low) ? "" : interval)
  );
}

/** Describe how the exact matches differ from those of the selected model; empty without a pair. */
export function describePairs({ only_this: one, only_checkpoint: other, p_value: p }) {
  return isMissing(p)
    ? ""
    : `Only this model is right on ${formatCount(one, "example")}, only yours on ` +
        `${formatInteger(other)}: ${p < 0.001 ? "p < 0.001" : "p = " + p.toPrecision(2)}`;
}

export function formatSeconds(seconds) {
  if (isMissing(seconds)) return "";
  if (seconds < 0.00095) return "< 1 ms";
  return seconds < 0.0995
    ? formatNumber(+(1000 * seconds).toPrecision(2)) + " ms"
    : formatNumber(+seconds.toPrecision(2)) + " s";
}

const percent = (fraction) => 100 * fraction + "%";

function Score({ row, metric }) {
  const { key } = metric,
    [value, low, high] = [row[key], row[key + "_low"], row[key + "_high"]],
    hasInterval = !isMissing(low);
  if (isMissing(value)) return html`<span class="pg-quiet">–</span>`;
  return html`<span class="score" title=${describeScore(row, metric)}>
    <span class="value">${formatPercent(value)}</span>
    ${
      hasInterval &&
      html` <span class="pg-quiet">[${Math.round(100 * low)}–${Math.round(100 * high)}]</span>`
    }
    <span class="track" aria-hidden="true">
      ${
        hasInterval &&
        html`<i class="range" style=${{ left: percent(low), width: percent(high - low) }}></i>`
      }
      <i class="dot" style=${{ left: percent(value) }}></i>
    </span>
  </span>`;
}

export function describePending(progress, isFirst) {
  if (!isFirst) return "queued";
  return progress.unit === "bytes"
    ? `downloading, ${formatBytes(progress.done)} of ${formatBytes(progress.total)}`
    : "running";
}

function ModelName({ row, job, onRetry }) {
  const details = [
    row.description + (row.decoding ? "; " + row.decoding : ""),
    row.caveat,
    describePairs(row),
  ];
  return html`<span class=${"name" + (isBaseline(row) ? " baseline" : "")}>${row.model}</span>
    ${details.filter(Boolean).map((text) => html`<span class="pg-sub">${text}</span>`)}
    ${
      row.error &&
      html`<span class="failed pg-error">
        ${formatMessage(describeError(row.error, row.error_code, row.model))}
        ${row.n > 0 && ` Evaluated before the error: ${row.n}.`} ${" "}
        ${
          !(outage.value && isOutage(row.error_code)) &&
          html`<${Button} disabled=${job.isBusy} onClick=${() => onRetry(row.model)}>Retry<//>`
        }
      </span>`
    }`;
}

const formatExamples = (row, requested) =>
  isMissing(row.n) || row.finished || row.error || !requested
    ? (row.n ?? "")
    : `${row.n} of ${requested}`;

/** @returns {Column[]} */
function buildColumns({ request }, job, onRetry) {
  const number = { isNumber: true, isOptional: true };
  return [
    {
      key: "model",
      label: "model",
      render: (row) => html`<${ModelName} row=${row} job=${job} onRetry=${onRetry} />`,
    },
    ...METRICS.map((metric) => ({
      key: metric.key,
      label: metric.label,
      help: metric.help,
      isNumber: true,
      render: (row) => !row.isPending && html`<${Score} row=${row} metric=${metric} />`,
    })),
    {
      key: "n",
      label: "examples",
      isNumber: true,
      render: (row) => formatExamples(row, request?.n),
    },
    {
      key: "parameters",
      label: "parameters",
      ...number,
      render: (row) => (row.parameters ? formatInteger(row.parameters) : ""),
    },
    {
      key: "seconds_per_example",
      label: "time per example",
      ...number,
      render: (row) => formatSeconds(row.seconds_per_example),
    },
  ];
}

/** Return the rows of the table: the results, and the models that wait, above the baselines. */
export function buildRows(state, request, progress) {
  const rows = sortedRows(state).map(([id, row]) => ({ id, ...row })),
    isOwnDone = rows.some((row) => !isBaseline(row) && row.finished),
    pending = (request?.models ?? [])
      .filter((name) => !state.rows[name])
      .map((model, i) => ({
        id: model,
        model,
        isPending: true,
        description: describePending(progress, isOwnDone && i === 0),
      }));
  return [
    ...rows.filter((row) => !isBaseline(row)),
    ...pending,
    ...rows.filter((row) => isBaseline(row)),
  ];
}

/** @param {{ job: any, onRetry: (model: string) => void }} props */
export function ResultTable({ job, onRetry }) {
  const state = results.value,
    progress = job.state.value;
  return html`<${DataTable}
    class="sheet"
    caption="Results by model"
    columns=${buildColumns(state, job, onRetry)}
    rows=${buildRows(state, isActive(progress) ? job.activeRequest : null, progress)}
    rowKey=${(row) => row.id}
    emptyText="No results yet. Choose models and press Run evaluation."
  />`;
}
