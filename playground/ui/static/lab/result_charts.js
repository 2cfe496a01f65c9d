// Charts.
import { formatCount, formatMessage, formatNumber } from "../shared/format.js";
import { heatmapChart, lineChart, paintSwatch } from "../shared/line_charts.js";
import { formatShare } from "./elements.js";
import { state } from "./state.js";

export function renderCharts() {
  if (!state.details || !state.resultsView.score.canvas.clientWidth) return;
  const { results, lengths } = state.details.results,
    cells = results.cells,
    on = cells
      .map((cell, colorIndex) => [cell, colorIndex])
      .filter(([cell]) => !state.hiddenVariants.has(cell.label));
  [...state.resultsView.legend.children].forEach((button, i) => paintSwatch(button.firstChild, i));
  [...state.resultsView.body.children].forEach((row, i) =>
    paintSwatch(row.querySelector("canvas"), i),
  );
  const finished = on.some(([cell]) => cell.n),
    maxValue = Math.max(1, ...cells.map((cell) => cell.steps)),
    over = results.cells.some((cell) => cell.n > 1)
      ? "the line is the median over seeds, the band the full range"
      : "one seed each";
  const line = (cell, colorIndex, curve) => ({
    label: cell.short,
    colorIndex,
    xs: curve.steps,
    median: curve.median,
    low: curve.low,
    high: curve.high,
  });
  const rest = finished
    ? formatMessage(over) + " Hover over the chart or use the arrow keys to read values."
    : "The curves appear after the first finished run; Train, below, shows a run live.";
  const steps = {
    x: [0, maxValue],
    marks: [
      [0, "0"],
      [maxValue, "step " + maxValue.toLocaleString("en")],
    ],
    what: "Step",
    rest,
  };
  lineChart(state.resultsView.score.canvas, {
    ...steps,
    series: on.map(([cell, colorIndex]) => line(cell, colorIndex, cell.curve)),
    y: [0, 1.02],
    ticks: [
      [0, "0"],
      [0.5, "50 %"],
      [0.99, "99 %"],
    ],
    write: formatShare,
    caption: state.resultsView.score.caption,
    title: state.resultsView.score.title,
  });
  const losses = on.map(([cell, colorIndex]) => line(cell, colorIndex, cell.loss)),
    all = losses
      .flatMap((each) => [...each.low, ...each.high])
      .map((v) => Math.log10(Math.max(v, 1e-9)));
  const low = Math.floor(Math.min(-1, ...all)),
    high = Math.max(0.6, ...all) + 0.05,
    ticks = [];
  for (let e = low; e <= high; e++)
    ticks.push([10 ** e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
  lineChart(state.resultsView.loss.canvas, {
    ...steps,
    series: losses,
    y: [low, high],
    log: true,
    ticks,
    write: formatNumber,
    caption: state.resultsView.loss.caption,
    title: state.resultsView.loss.title,
  });
  state.resultsView.byLength.box.parentElement.hidden = !lengths;
  if (!lengths) return;
  const placeOf = (at) => cells[at].label,
    rows = lengths.rows
      .map((row, at) => [row, at])
      .filter(([, at]) => !state.hiddenVariants.has(placeOf(at)));
  const hasScores = rows.some(([row]) => row.n),
    first = lengths.trained[0],
    series = rows.map(([row, colorIndex]) => schemeSeries(row, colorIndex));
  const marks = [[1, "length 1"]];
  for (let v = 10; v < lengths.max_length * 0.86; v += lengths.max_length > 60 ? 50 : 10)
    marks.push([v, String(v)]);
  const single = lengths.rows.some((row) => row.n === 1),
    how =
      "Up to " +
      formatCount(lengths.n_requested, "held-out sequence") +
      " of each length; " +
      (single
        ? "bands are 95 % intervals for a single seed, otherwise the full range over seeds."
        : "the line is the median over seeds, the band the full range.") +
      " Shaded: training lengths.";
  lineChart(state.resultsView.byLength.canvas, {
    series,
    x: [1, Math.max(2, lengths.max_length)],
    y: [0, 1.02],
    ticks: [
      [0, "0"],
      [0.25, "25 %"],
      [0.5, "50 %"],
      [0.75, "75 %"],
      [1, "100 %"],
    ],
    marks: [...marks, [lengths.max_length, String(lengths.max_length)]],
    what: "Length",
    write: formatShare,
    shaded: [Math.max(1, first), lengths.trained[1]],
    caption: state.resultsView.byLength.caption,
    rest: hasScores
      ? how
      : "The lines appear after a run is finished and evaluated at all lengths.",
    title: state.resultsView.byLength.title,
  });
  const every = Array.from({ length: lengths.max_length }, (_, i) => i + 1);
  heatmapChart(state.resultsView.heat.canvas, {
    rows: rows.map(([row]) => ({
      label: row.label,
      n: row.n,
      by: Object.fromEntries(row.lengths.map((length, k) => [length, row.median[k]])),
    })),
    lengths: every,
    write: formatShare,
    trained: lengths.trained[1],
    caption: state.resultsView.heat.caption,
    title: state.resultsView.heat.title,
    rest:
      (document.body.classList.contains("dark")
        ? "Dark is 0, bright is 100 %."
        : "White is 0, dark is 100 %.") +
      " Hatched: not evaluated, or no held-out sequences. The line marks the longest " +
      "training length.",
  });
}
// The line of one scheme: the median with the range over seeds, or a single seed with its 95 %
// interval.
function schemeSeries(row, colorIndex) {
  const line = {
    label: row.label,
    colorIndex,
    xs: row.lengths,
    median: row.median,
    low: row.low,
    high: row.high,
  };
  if (row.n !== 1) return line;
  const scores = row.runs
    .find((run) => run.scores.length)
    .scores.filter((each) => each.exact_match !== null);
  return {
    ...line,
    bandXs: scores.map((each) => each.length),
    low: scores.map((each) => each.low),
    high: scores.map((each) => each.high),
  };
}
