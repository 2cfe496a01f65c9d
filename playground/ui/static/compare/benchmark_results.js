// The results of the benchmark. pretrained/benchmark/job.py sends the rows; the newest of each
// counts.
import { loadText, saveText } from "../shared/storage.js";
import { signal } from "../vendor/preact.js";

const RESULTS_KEY = "transformer-playground-compare-table";
const MAX_RESULTS_LENGTH = 2_500_000;
const FIRST_BASELINE_RANK = 1000;

/** @typedef {ReturnType<typeof emptyResults>} Results */
export const emptyResults = () => ({
  /** The request of the results. */
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
export const beginJob = (state) => ({
  ...state,
  part: state.part + 1,
  isCleared: false,
});

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
export const listPending = ({ request, rows }, active) =>
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
