// Figures of measurements.
import { formatNumber } from "../shared/format.js";
import { el, setText } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { lineChart, paintSwatch } from "../shared/line_charts.js";
import { formatShare } from "./elements.js";

const FIGURE_RENDERERS = {
  curves: renderCurves,
  map: renderMap,
  bars: renderBars,
  answers: renderAnswers,
};
// Draw the figures of a response into a box. Elements are reused while the types of figures stay.
export function renderFigures(box, pictures) {
  const kinds = pictures.map((each) => each.kind + (each.series || each.bars || []).length).join();
  if (box.dataset.kinds !== kinds) {
    box.dataset.kinds = kinds;
    box.replaceChildren(...pictures.map(() => el("figure")));
  }
  pictures.forEach((each, i) => FIGURE_RENDERERS[each.kind](box.children[i], each));
}
function ensureChildren(figure, make) {
  if (!figure.firstChild) figure.append(...make());
  return figure.children;
}

function renderCurves(figure, p) {
  const [title, legend, canvas, caption] = ensureChildren(figure, () => [
    el("figcaption"),
    el("p", { className: "legend" }),
    el("canvas"),
    el("p", { className: "caption" }),
  ]);
  setText(title, p.title);
  if (legend.children.length !== p.series.length)
    legend.replaceChildren(...p.series.map(() => el("span", {}, el("canvas"), el("span"))));
  p.series.forEach((each, i) => {
    setText(legend.children[i].children[1], each.label);
    paintSwatch(legend.children[i].children[0], each.colorIndex ?? i);
  });
  const xs = p.series.flatMap((each) => each.xs),
    ys = p.series.flatMap((each) => each.ys),
    last = Math.max(1, p.max || 0, ...xs),
    length = p.x === "length";
  const first = length ? Math.min(...xs, last) : 0,
    loss = p.what === "loss";
  const write = loss ? formatNumber : formatShare;
  const low = loss ? Math.floor(Math.log10(Math.max(1e-4, Math.min(1, ...ys)))) : 0,
    high = loss ? Math.log10(Math.max(1, ...ys)) : 1;
  const ticks = loss
    ? [0.0001, 0.001, 0.01, 0.1, 1]
        .filter((y) => Math.log10(y) >= low)
        .map((y) => [y, formatNumber(y)])
    : [0, 0.5, 1].map((y) => [y, formatShare(y)]);
  lineChart(canvas, {
    series: p.series.map((each, i) => ({
      label: each.label,
      colorIndex: each.colorIndex ?? i,
      xs: each.xs,
      median: each.ys,
      low: each.ys,
      high: each.ys,
    })),
    x: [first, last],
    y: [low, high],
    log: loss,
    ticks,
    marks: [
      [first, String(first)],
      [last, (length ? "length " : "step ") + last],
    ],
    what: length ? "Length" : "Step",
    shaded: p.trained ? [first, p.trained] : null,
    write,
    caption,
    rest: p.note || "Hover over the curve to read values.",
    title: p.title,
  });
}
function renderMap(figure, p) {
  const [title, canvas, caption] = ensureChildren(figure, () => [
    el("figcaption"),
    el("canvas"),
    el("p", { className: "caption" }),
  ]);
  setText(title, p.title);
  caption.dataset.resting =
    p.rest ||
    "Rows: " +
      (p.written ? "generated tokens" : "decoder input tokens") +
      " (queries). Columns: source (keys). Hover over a cell to read its weight.";
  mountMatrix(
    canvas,
    {
      rows: p.rows,
      columns: p.columns,
      weights: p.weights,
      possible: p.possible,
      chosen: p.chosen,
      size: p.size || 34,
    },
    {
      caption,
      hover: (r, k) =>
        p.rows[r] +
        " attends to " +
        p.columns[k] +
        " with weight " +
        p.weights[r][k].toFixed(3) +
        ", position " +
        (k + 1) +
        ".",
    },
  );
}
function renderBars(figure, p) {
  const [title, list] = ensureChildren(figure, () => [
    el("figcaption"),
    el("ul", { className: "bars" }),
  ]);
  setText(title, p.title);
  const maxValue = p.max || Math.max(1e-9, ...p.bars.map((each) => each.value));
  list.replaceChildren(
    ...p.bars.map((each) => {
      const fill = el("i");
      fill.style.width = Math.max(0, (100 * each.value) / maxValue) + "%";
      return el(
        "li",
        {
          title: each.label + ": " + formatNumber(each.value) + (each.note ? ", " + each.note : ""),
        },
        el("span", { textContent: each.label }),
        el("b", {}, fill),
        el("span", {
          className: "note",
          textContent: p.max ? each.note : formatNumber(each.value) + " · " + each.note,
        }),
      );
    }),
  );
}
function renderAnswers(figure, p) {
  const [title, table] = ensureChildren(figure, () => [el("figcaption"), el("table")]);
  setText(title, p.title);
  const row = (tag, cells, className = "") =>
    el("tr", { className }, ...cells.map((text) => el(tag, { textContent: text })));
  table.replaceChildren(
    row("th", ["input", "target", "output"]),
    ...p.rows.map((each) =>
      row(
        "td",
        [each.input, each.right, each.prediction],
        each.right === each.prediction ? "" : "wrong",
      ),
    ),
  );
}
