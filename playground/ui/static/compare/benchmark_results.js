// Results.
import { formatCount } from "../shared/format.js";
import { benchmarkResults, MAX_RESULTS_LENGTH, RESULTS_KEY } from "./benchmark.js";
import { isBaseline, renderResults, sortedRows } from "./benchmark_table.js";
import { listLocalModels, loadModelFacts } from "./pretrained_models.js";
import { state } from "./state.js";

export function onBenchmarkStart(request) {
  state.benchmarkForm.go.textContent = "Run again";
  benchmarkResults.pending = request;
  benchmarkResults.part += 1;
  if (request.retry) {
    benchmarkResults.leaks = benchmarkResults.leaks.filter((leak) => leak.model !== request.retry);
    benchmarkResults.cleared = false;
  }
  renderResults();
}
export function onBenchmarkRows(rows, response, request) {
  for (const row of rows) applyRow(row, request);
}
function applyRow(row, request) {
  const only = request.retry;
  if (row.kind === "settings" && !only)
    Object.assign(benchmarkResults, {
      what: request,
      settings: row,
      rows: new Map(),
      items: new Map(),
      leaks: [],
      estimates: new Map(),
      subject: request.of || "",
    });
  if (only && row.model !== only) return;
  const id = benchmarkResults.part + ":" + row.index;
  if (row.kind === "model") {
    if (only && !benchmarkResults.cleared) {
      for (const [key, each] of benchmarkResults.rows)
        if (each.model === only) {
          benchmarkResults.rows.delete(key);
          for (const of of benchmarkResults.items.values()) of.delete(key);
        }
      benchmarkResults.cleared = true;
    }
    benchmarkResults.rows.set(id, row);
  } else if (row.kind === "estimate") benchmarkResults.estimates.set(id, row);
  else if (row.kind === "leak") benchmarkResults.leaks.push(row);
  else if (row.kind === "example") {
    if (!benchmarkResults.items.has(row.number)) benchmarkResults.items.set(row.number, new Map());
    benchmarkResults.items.get(row.number).set(id, row);
  }
}
export function onBenchmarkFinish(response, request) {
  benchmarkResults.pending = null;
  renderResults(response);
  // the downloaded models are now on this machine
  if (request.models.length) loadModelFacts(request.models, true);
  listLocalModels();
  saveResults();
  return response.status === "done"
    ? "Evaluated: " +
        formatCount([...benchmarkResults.items.keys()].length, "example") +
        ", " +
        formatCount(
          [...benchmarkResults.rows.values()].filter((row) => !isBaseline(row) && !row.error)
            .length,
          "model",
        ) +
        " and the baselines."
    : "";
}
function saveResults() {
  const whole = JSON.stringify({
    ...benchmarkResults,
    pending: null,
    rows: [...benchmarkResults.rows],
    estimates: [...benchmarkResults.estimates],
    items: [...benchmarkResults.items].map(([number, of]) => [number, [...of]]),
  });
  try {
    if (whole.length < MAX_RESULTS_LENGTH) localStorage.setItem(RESULTS_KEY, whole);
    else localStorage.removeItem(RESULTS_KEY);
  } catch (error) {
    /* storage is full: the server keeps the results for some time */
  }
}
// Names of the fields in results that version 0.2.0 has saved.
const OLD_NAMES = {
  place: "index",
  what: "description",
  way: "decoding",
  note: "caveat",
  over: "finished",
  seconds_an_item: "seconds_per_example",
  rank_seconds_an_item: "rank_seconds_per_example",
  question: "source",
  answer: "target",
  raw: "raw_output",
  read: "prediction",
  right: "correct",
  places: "correct_positions",
};
const upgradeRow = (row) =>
  Object.fromEntries(Object.entries(row).map(([name, value]) => [OLD_NAMES[name] || name, value]));
const upgradeCandidates = ({ candidates, ...row }) => ({
  ...row,
  candidates: candidates.map(({ made, right, ...each }) => ({
    origin: made,
    is_target: right,
    ...each,
  })),
});
const upgradeRows = (rows) => rows.map(([id, row]) => [id, upgradeRow(row)]);
export function loadResults() {
  try {
    const whole = JSON.parse(localStorage.getItem(RESULTS_KEY) || "null");
    if (whole && whole.settings)
      Object.assign(benchmarkResults, whole, {
        pending: null,
        settings: { few_shot_examples: whole.settings.examples, ...whole.settings },
        rows: new Map(upgradeRows(whole.rows)),
        estimates: new Map(upgradeRows(whole.estimates)),
        items: new Map(
          whole.items.map(([number, of]) => [
            number,
            new Map(upgradeRows(of).map(([id, row]) => [id, upgradeCandidates(row)])),
          ]),
        ),
      });
  } catch (error) {
    /* the stored value is malformed */
  }
  renderResults();
}

export const resultRows = () => sortedRows().map(([, { kind, index, finished, ...row }]) => row);
export const exampleRows = () =>
  [...benchmarkResults.items]
    .sort(([a], [b]) => a - b)
    .flatMap(([, answers]) =>
      [...answers].map(([id, item]) => ({
        model: item.model,
        decoding: (benchmarkResults.rows.get(id) || {}).decoding || "",
        number: item.number,
        source: item.source,
        target: item.target,
        raw_output: item.raw_output,
        prediction: (item.prediction || []).map((each) => each || "?").join(" "),
        correct: Number(item.correct),
        correct_positions: item.correct_positions.map(Number).join(""),
        rank: item.rank,
        candidates: item.candidates.length,
        seconds: item.seconds,
        prompt: item.prompt,
      })),
    );
export const exportData = () => ({
  settings: benchmarkResults.settings,
  rows: resultRows(),
  leaks: benchmarkResults.leaks,
  examples: [...benchmarkResults.items]
    .sort(([a], [b]) => a - b)
    .flatMap(([, answers]) => [...answers.values()]),
});
