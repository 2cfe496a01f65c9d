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
import { loadText, saveText } from "../shared/storage.js";
import { describeError, isOutage, outage } from "./jobs.js";
/** @import { Column } from "../shared/types.js" */

const RESULTS_KEY = "transformer-playground-compare-table";
const MAX_RESULTS_LENGTH = 2_500_000;
const FIRST_BASELINE_RANK = 1000;

/** @typedef {ReturnType<typeof emptyResults>} Results */
export const emptyResults = () => ({
  request: /** @type {any} */ (null),
  settings: /** @type {any} */ (null),
  rows: /** @type {Map<string, any>} */ (new Map()),
  /** The predictions for each example, by the ids of the rows. */
  items: /** @type {Map<number, Map<string, any>>} */ (new Map()),
  subject: "",
  /** The number of the job; a model that is tried again has its rows from a later one. */
  part: 0,
  isCleared: false,
  /** Where the results were recorded; empty if they are of this server. */
  origin: "",
});
export const results = signal(emptyResults());

export const isBaseline = (row) => row.description === "baseline";

/** Begin a job. The earlier results stay until its first row. @param {Results} state */
export const beginJob = (state) => ({ ...state, part: state.part + 1, isCleared: false });

/** Remove the rows and predictions of a model. @param {Results} state @param {string} model */
function removeModel(state, model) {
  for (const [id, row] of state.rows)
    if (row.model === model) {
      state.rows.delete(id);
      for (const predictions of state.items.values()) predictions.delete(id);
    }
}

/** @param {Results} state @param {any} row @param {any} request */
function addRow(state, row, request) {
  const id = `${state.part}:${row.index}`;
  if (row.kind === "settings" && !request.retry)
    Object.assign(state, {
      ...emptyResults(),
      part: state.part,
      request,
      settings: row,
      subject: request.of || "",
    });
  if (request.retry && row.model !== request.retry) return;
  if (row.kind === "model") {
    if (request.retry && !state.isCleared) removeModel(state, row.model);
    state.isCleared = true;
    state.rows.set(id, row);
  } else if (row.kind === "example") {
    if (!state.items.has(row.number)) state.items.set(row.number, new Map());
    state.items.get(row.number)?.set(id, row);
  }
}

/** Return the results after more rows. @param {Results} before */
export function addRows(before, rows, request) {
  const state = {
    ...before,
    rows: new Map(before.rows),
    items: new Map(
      [...before.items].map(([number, predictions]) => [number, new Map(predictions)]),
    ),
  };
  for (const row of rows) addRow(state, row, request);
  return state;
}

/** Return [id, row] pairs: the selected model, the others in their order, then the baselines. */
export function sortedRows({ request, rows }) {
  const requested = request?.models ?? [];
  const rank = (row) => (isBaseline(row) ? FIRST_BASELINE_RANK : 1 + requested.indexOf(row.model));
  return [...rows].sort(
    ([a, x], [b, y]) => rank(x) - rank(y) || x.index - y.index || (a < b ? -1 : 1),
  );
}

/** Return the predictions of all rows to each example, in the order of the examples. */
export const sortedItems = ({ items }) => [...items].sort(([a], [b]) => a - b);

/** Return the requested models that have no row yet. @param {Results} state */
const listPending = ({ request, rows }, active) =>
  active && !active.retry && request === active
    ? active.models.filter((name) => ![...rows.values()].some((row) => row.model === name))
    : [];

export const resultRecords = (state) =>
  sortedRows(state).map(([, { kind, index, finished, ...row }]) => row);

export const exampleRecords = (state) =>
  sortedItems(state).flatMap(([, predictions]) =>
    [...predictions].map(([id, item]) => ({
      model: item.model,
      decoding: state.rows.get(id)?.decoding ?? "",
      number: item.number,
      source: item.source,
      target: item.target,
      raw_output: item.raw_output,
      prediction: (item.prediction || []).map((token) => token || "?").join(" "),
      correct: Number(item.correct),
      correct_positions: item.correct_positions.map(Number).join(""),
      rank: item.rank,
      candidates: item.candidates.length,
      seconds: item.seconds,
      prompt: item.prompt,
    })),
  );

export const exportData = (state) => ({
  settings: state.settings,
  rows: resultRecords(state),
  examples: sortedItems(state).flatMap(([, predictions]) => [...predictions.values()]),
});

export function saveResults() {
  const state = results.value,
    text = JSON.stringify({
      ...state,
      rows: [...state.rows],
      items: [...state.items].map(([number, predictions]) => [number, [...predictions]]),
    });
  // The server keeps larger results for some time.
  saveText(RESULTS_KEY, text.length < MAX_RESULTS_LENGTH ? text : null);
}

/** Return saved results; empty ones if the text has none. */
export function parseResults(text) {
  try {
    const saved = JSON.parse(text || "null") ?? {};
    if (!saved.settings) return emptyResults();
    return {
      ...emptyResults(),
      ...saved,
      rows: new Map(saved.rows),
      items: new Map(saved.items.map(([number, predictions]) => [number, new Map(predictions)])),
    };
  } catch {
    return emptyResults(); // the stored value is malformed
  }
}

export function loadResults() {
  results.value = parseResults(loadText(RESULTS_KEY));
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
  {
    key: "rank_accuracy",
    label: "ranking",
    help: "How often the target is the most probable candidate",
    count: (row) => row.ranked,
  },
];
const isMissing = (value) => value === null || value === undefined;
const chanceOf = (row, key) =>
  key === "rank_accuracy" && !isBaseline(row) ? (row.rank_chance ?? null) : null;

export function describeScore(row, { key, count }) {
  const low = row[key + "_low"],
    chance = chanceOf(row, key);
  return [
    formatPercent(row[key]) + (count(row) ? " of " + formatInteger(count(row)) : ""),
    isMissing(low)
      ? ""
      : `95 % interval ${formatPercent(low)} to ${formatPercent(row[key + "_high"])}`,
    chance === null ? "" : "chance " + formatPercent(chance),
  ]
    .filter(Boolean)
    .join("; ");
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
    chance = chanceOf(row, key),
    hasInterval = !isMissing(low) && !isMissing(high);
  if (isMissing(value))
    return html`<span class="pg-quiet" title=${key === "rank_accuracy" ? "Not ranked" : ""}
      >–</span
    >`;
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
      ${chance !== null && html`<i class="chance" style=${{ left: percent(chance) }}></i>`}
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

const GROWTH = "Growth of the process during the evaluation";

function Memory({ row }) {
  if (!row.weights_bytes) return null;
  const added = ("+ " + formatBytes(row.added_bytes)).replaceAll(" ", "\u00a0");
  return html`${formatBytes(row.weights_bytes)}
  ${row.added_bytes > 0 && html`<span class="pg-sub" title=${GROWTH}>${added}</span>`}`;
}

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
    {
      key: "weights_bytes",
      label: "memory",
      ...number,
      render: (row) => html`<${Memory} row=${row} />`,
    },
  ];
}

/** Return the rows of the table: the results, and the models that wait, above the baselines. */
export function buildRows(state, request, progress) {
  const rows = sortedRows(state).map(([id, row]) => ({ id, ...row })),
    firstBaseline = rows.findIndex(isBaseline),
    isOwnDone = rows.some((row) => !isBaseline(row) && row.finished),
    pending = listPending(state, request).map((model, i) => ({
      id: "pending " + model,
      model,
      isPending: true,
      description: describePending(progress, isOwnDone && i === 0),
    }));
  rows.splice(firstBaseline < 0 ? rows.length : firstBaseline, 0, ...pending);
  return rows;
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
