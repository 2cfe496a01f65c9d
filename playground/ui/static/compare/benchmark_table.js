// The table.
import { formatBytes, formatMessage, formatNumber, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { benchmarkResults, METRIC_COLUMNS } from "./benchmark.js";
import { renderExamples } from "./benchmark_examples.js";
import { formatProbability } from "./inference_form.js";
import { state } from "./state.js";

export const isBaseline = (row) => row.description === "baseline";
// Your model first, then the selected models in their order, then the baselines.
export function sortedRows() {
  const requested = benchmarkResults.what ? benchmarkResults.what.models : [],
    rank = (row) =>
      isBaseline(row) ? 1000 : requested.includes(row.model) ? 1 + requested.indexOf(row.model) : 0;
  return [...benchmarkResults.rows].sort(
    ([a, x], [b, y]) => rank(x) - rank(y) || x.index - y.index || (a < b ? -1 : 1),
  );
}
function createScoreCell(row, name) {
  const cell = el("td", { className: "score" }),
    value = row[name],
    low = row[name + "_low"],
    high = row[name + "_high"],
    of = name === "rank_accuracy" ? row.ranked : name === "token_accuracy" ? row.symbols : row.n;
  if (value === null || value === undefined) {
    cell.append(
      el("span", {
        className: "nothing",
        textContent: "–",
        title: row.finished ? "not measured" : "not yet",
      }),
    );
    return cell;
  }
  const chance = name === "rank_accuracy" && !isBaseline(row) ? row.rank_chance : null;
  cell.title =
    formatProbability(value) +
    (of ? " of " + of.toLocaleString("en") : "") +
    (low === null || low === undefined
      ? ""
      : "; 95 % interval " + formatPercent(low) + " to " + formatPercent(high)) +
    (chance === null || chance === undefined ? "" : "; chance " + formatProbability(chance));
  cell.append(
    el("span", { className: "value", textContent: formatProbability(value) }),
    " ",
    el("span", {
      className: "interval",
      textContent:
        low === null || low === undefined
          ? ""
          : "[" + Math.round(100 * low) + "–" + Math.round(100 * high) + "]",
    }),
  );
  const track = el("span", { className: "track" });
  if (low !== null && low !== undefined)
    track.append(
      el("i", {
        className: "range",
        style: "left:" + 100 * low + "%;width:" + Math.max(1, 100 * (high - low)) + "%",
      }),
    );
  if (chance !== null && chance !== undefined)
    track.append(el("i", { className: "chance", style: "left:" + 100 * chance + "%" }));
  track.append(el("i", { className: "dot", style: "left:" + 100 * value + "%" }));
  cell.append(track);
  if (chance !== null && chance !== undefined)
    cell.append(
      el("span", { className: "what", textContent: "chance " + formatProbability(chance) }),
    );
  return cell;
}
const formatSecondsPerExample = (s) =>
  s === null || s === undefined
    ? ""
    : s < 0.0995
      ? formatNumber(+(1000 * s).toPrecision(2)) + " ms"
      : formatNumber(+s.toPrecision(2)) + " s";
// The number of evaluated examples of an active or cancelled model.
const formatExampleCount = (row) =>
  row.finished || row.error || !benchmarkResults.what
    ? String(row.n)
    : row.n + " of " + benchmarkResults.what.n;
function createResultRow(id, row) {
  const name = el(
    "td",
    { className: "who" },
    el("span", { className: "name", textContent: row.model }),
    el("span", {
      className: "what",
      textContent: row.description + (row.decoding ? "; " + row.decoding : ""),
    }),
  );
  if (row.caveat) name.append(el("span", { className: "what", textContent: row.caveat }));
  const cells = [name];
  if (row.error) {
    const cell = el(
        "td",
        { className: "failed", colSpan: 7 },
        el("span", {
          textContent:
            formatMessage(row.error) + (row.n ? " Evaluated before the error: " + row.n + "." : ""),
        }),
        " ",
      ),
      again = el("button", { type: "button", className: "quiet", textContent: "Try again" });
    again.disabled = state.benchmarkJob.busy;
    again.addEventListener("click", () => retryModel(row.model));
    cell.append(again);
    return el("tr", { className: "wrong-row" }, ...cells, cell);
  }
  cells.push(...METRIC_COLUMNS.map(([score]) => createScoreCell(row, score)));
  const estimate = benchmarkResults.estimates.get(id);
  cells.push(
    el("td", {
      className: "number",
      textContent: formatExampleCount(row),
      title: estimate ? estimate.message : "",
    }),
  );
  cells.push(
    el("td", {
      className: "number",
      textContent: row.parameters ? row.parameters.toLocaleString("en") : "",
    }),
  );
  cells.push(
    el("td", {
      className: "number",
      textContent: formatSecondsPerExample(row.seconds_per_example),
      title: row.rank_seconds_per_example
        ? "and " + formatSecondsPerExample(row.rank_seconds_per_example) + " per ranked example"
        : "",
    }),
  );
  cells.push(
    el(
      "td",
      { className: "number" },
      row.weights_bytes ? formatBytes(row.weights_bytes) : "",
      ...(row.added_bytes > 0
        ? [
            el("span", {
              className: "what",
              textContent: "process + " + formatBytes(row.added_bytes),
            }),
          ]
        : []),
    ),
  );
  return el("tr", { className: isBaseline(row) ? "baseline" : "" }, ...cells);
}
function createPendingRow(name, response, first) {
  const what =
    first && response && response.unit === "bytes"
      ? "downloading, " + formatBytes(response.done) + " of " + formatBytes(response.total)
      : first && state.benchmarkJob.busy
        ? "running"
        : "queued";
  return [
    what,
    el(
      "tr",
      { className: "to-come" },
      el(
        "td",
        { className: "who" },
        el("span", { className: "name", textContent: name }),
        el("span", { className: "what", textContent: what }),
      ),
      el("td", { colSpan: 7 }),
    ),
  ];
}
export function renderResults(response = null) {
  const rowSpecs = sortedRows().map(([id, row]) => [
    id,
    JSON.stringify([row, state.benchmarkJob.busy && row.error]),
    () => createResultRow(id, row),
  ]);
  if (
    benchmarkResults.pending &&
    !benchmarkResults.pending.retry &&
    benchmarkResults.what === benchmarkResults.pending
  ) {
    const left = benchmarkResults.pending.models.filter(
        (name) => ![...benchmarkResults.rows.values()].some((row) => row.model === name),
      ),
      own = [...benchmarkResults.rows.values()].some(
        (row) =>
          !isBaseline(row) && !benchmarkResults.pending.models.includes(row.model) && row.finished,
      );
    const before = rowSpecs.findIndex(([id]) => isBaseline(benchmarkResults.rows.get(id)));
    rowSpecs.splice(
      before < 0 ? rowSpecs.length : before,
      0,
      ...left.map((name, i) => {
        const [words, row] = createPendingRow(name, response, own && i === 0);
        return ["to come " + name, name + words, () => row];
      }),
    );
  }
  const existing = new Map(
    [...state.benchmarkForm.body.children].map((row) => [row.dataset.id, row]),
  );
  const rows = rowSpecs.map(([id, signature, make]) => {
    const before = existing.get(id);
    if (before && before.dataset.signature === signature) return before;
    const row = make();
    row.dataset.id = id;
    row.dataset.signature = signature;
    return row;
  });
  state.benchmarkForm.body.replaceChildren(
    ...(rows.length
      ? rows
      : [
          el(
            "tr",
            { className: "to-come" },
            el(
              "td",
              { colSpan: 8 },
              el("span", {
                className: "empty",
                textContent: "No results yet. Select models to compare and press Run.",
              }),
            ),
          ),
        ]),
  );
  if (benchmarkResults.settings)
    state.benchmarkForm.caption.textContent = benchmarkResults.settings.caption;
  const leaks = benchmarkResults.leaks.map((leak) => leak.message).join("\n");
  if (state.benchmarkForm.leaks.dataset.text !== leaks) {
    state.benchmarkForm.leaks.dataset.text = leaks;
    state.benchmarkForm.leaks.replaceChildren(
      ...benchmarkResults.leaks.map((leak) =>
        el("p", { className: "hint", textContent: leak.message }),
      ),
    );
  }
  state.benchmarkForm.files.hidden = !benchmarkResults.rows.size;
  renderExamples();
  // tests wait for this attribute
  state.benchmarkForm.whole.dataset.rows = benchmarkResults.rows.size;
}
function retryModel(name) {
  const { n, shots, rank } = benchmarkResults.what;
  state.benchmarkJob.run(
    "benchmark",
    { models: [name], n, shots, rank, retry: name },
    benchmarkResults.subject,
  );
}
