// The options that uPlot receives from a chart.

import { copyCanvas } from "./canvas.js";
import { formatInteger, formatNumber } from "./format.js";
import { cssVariable, dashOf, resolveColor } from "./palette.js";
/** @import uPlot from "../vendor/uplot.js" */
/** @import { Chart } from "./chart.js" */
/** @import { Marker, Series } from "./types.js" */

const BAND_ALPHA = "29"; // of 255, in hexadecimal
const MAX_POINTS = 40; // a line with more values has no points
const Y_AXIS_WIDTH = 44;
const INTEGER_INCREMENTS = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map((factor) => factor * 10 ** power),
).flat();
const MIN_DECADES = 0.8; // of a logarithmic axis
const MIN_DECADES_OF_TICKS = 2; // without ticks between the powers of ten

/** @param {Chart} chart @returns {uPlot.Options} */
export function buildPlotOptions(chart) {
  const { hasXLabel = true, height, isLog, syncKey, xLabel } = chart.options;
  return {
    width: chart.plotBox.clientWidth,
    height,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    scales: {
      x: { time: false, range: () => chart.xLimits() },
      y: { distr: isLog ? 3 : 1, range: (_, low, high) => yRange(chart, low, high) },
    },
    series: [{}, ...chart.columns.map((column) => buildSeries(column))],
    bands: chart.columns.flatMap(({ series, kind }, i) =>
      kind === "high"
        ? [
            {
              series: /** @type {[number, number]} */ ([i + 1, i + 2]),
              fill: () => withAlpha(resolveColor(series.color), BAND_ALPHA),
            },
          ]
        : [],
    ),
    axes: [
      {
        ...axisStyle(),
        size: 24,
        label: hasXLabel ? xLabel : undefined,
        labelSize: 16,
        labelGap: 0,
        ...(chart.options.formatX === formatInteger && { incrs: INTEGER_INCREMENTS }),
        values: (_, splits) => splits.map(chart.options.formatX),
      },
      {
        ...axisStyle(),
        size: Y_AXIS_WIDTH,
        ...(isLog && {
          splits: (_, __, low, high) => logTicks(low, high),
          filter: (_, splits) => splits,
        }),
        values: (_, splits) =>
          formatTicks(splits, chart.options.formatTick ?? chart.options.formatY),
      },
    ],
    cursor: buildCursor(syncKey),
    hooks: {
      drawAxes: [(plot) => drawShaded(chart, plot)],
      draw: [(plot) => chart.markers.forEach((marker) => drawMarker(plot, marker))],
      setCursor: [(plot) => chart.handleCursor(plot.cursor.idx)],
      ready: [(plot) => plot.over.addEventListener("click", () => chart.selectCursor())],
    },
  };
}

const GRID = { stroke: () => cssVariable("--pg-grid"), width: 1 };

/**
 * Return the ticks of a logarithmic axis: the powers of ten, and 2 and 5 times these if there are
 * few. uPlot's own ticks need limits that are multiples of a power of ten.
 * @param {number} low @param {number} high
 */
export function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)),
    count = Math.ceil(Math.log10(high)) - first + 1,
    factors = Math.log10(high / low) < MIN_DECADES_OF_TICKS ? [1, 2, 5] : [1],
    ticks = Array.from({ length: count }, (_, i) =>
      factors.map((factor) => Number(`${factor}e${first + i}`)),
    );
  return ticks.flat().filter((tick) => tick >= low && tick <= high);
}

/**
 * Format the ticks of an axis. If a plain number is below 0.001, all have an exponent.
 * @param {(number | null)[]} ticks @param {(value: number) => string} format
 */
export function formatTicks(ticks, format) {
  const isSmall = format === formatNumber && ticks.some((tick) => tick && Math.abs(tick) < 1e-3),
    text = (/** @type {number} */ tick) =>
      isSmall && tick ? tick.toExponential().replace("e+", "e") : format(tick);
  return ticks.map((tick) => (tick === null ? "" : text(tick)));
}

/** @returns {uPlot.Axis} */
function axisStyle() {
  const font = "12px " + (cssVariable("--pg-font") || "sans-serif");
  return {
    stroke: () => cssVariable("--pg-quiet-text"),
    font,
    labelFont: font,
    gap: 4,
    grid: GRID,
    ticks: { show: false },
  };
}

/** @param {import("./chart_data.js").PlotColumn} column @returns {uPlot.Series} */
function buildSeries({ series, kind }) {
  const isLine = kind === "line";
  return {
    stroke: isLine ? () => resolveColor(series.color) : undefined,
    width: isLine ? 1.8 : 0,
    dash: isLine ? dashOf(series) : undefined,
    points: {
      show: (plot, index) => {
        if (!isLine) return false;
        let count = 0;
        for (const y of plot.data[index])
          if (y !== null && y !== undefined && ++count > MAX_POINTS) return false;
        return count === 1 || Boolean(series.hasPoints);
      },
      size: 5,
      fill: () => resolveColor(series.color),
    },
  };
}

/** @param {string | undefined} syncKey @returns {uPlot.Cursor} */
function buildCursor(syncKey) {
  return {
    y: false,
    drag: { x: false, y: false },
    points: { show: false },
    ...(syncKey ? { sync: { key: syncKey, setSeries: false, scales: ["x", null] } } : {}),
  };
}

/** @param {string} color @param {string} alpha hexadecimal */
const withAlpha = (color, alpha) => (/^#[\da-f]{6}$/i.test(color) ? color + alpha : color);

/**
 * Return the limits of the y axis for the values in sight.
 * @param {Chart} chart @param {number | null} low @param {number | null} high
 * @returns {[number, number]}
 */
export function yRange(chart, low, high) {
  const { isLog, yRange: fixed } = chart.options;
  if (low === null || high === null) return isLog ? [0.01, 1] : [fixed?.[0] ?? 0, fixed?.[1] ?? 1];
  if (isLog) {
    const margin = 10 ** 0.05,
      top = high * margin;
    return [Math.min(low / margin, top / 10 ** MIN_DECADES), top];
  }
  const margin = 0.05 * (high - low || Math.abs(high) || 1);
  return [fixed?.[0] ?? low - margin, fixed?.[1] ?? high + margin];
}

/** @param {Chart} chart @param {uPlot} plot */
function drawShaded(chart, plot) {
  if (!chart.options.shaded) return;
  const { ctx, bbox } = plot,
    [from, to] = chart.options.shaded.map((x) => plot.valToPos(x, "x", true));
  ctx.save();
  clipToPlot(plot);
  ctx.fillStyle = cssVariable("--pg-grid");
  ctx.globalAlpha = 0.5;
  ctx.fillRect(from, bbox.top, to - from, bbox.height);
  ctx.restore();
}

/** @param {uPlot} plot @param {Marker} marker */
function drawMarker(plot, { x, label, color = "--pg-quiet" }) {
  const { ctx, bbox } = plot,
    ratio = devicePixelRatio || 1,
    at = Math.round(plot.valToPos(x, "x", true));
  if (at < bbox.left || at > bbox.left + bbox.width) return;
  ctx.save();
  clipToPlot(plot);
  ctx.strokeStyle = ctx.fillStyle = resolveColor(color);
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(at, bbox.top);
  ctx.lineTo(at, bbox.top + bbox.height);
  ctx.stroke();
  if (label) {
    const isRight = at > bbox.left + 0.8 * bbox.width;
    ctx.font = 12 * ratio + "px " + (cssVariable("--pg-font") || "sans-serif");
    ctx.fillStyle = cssVariable("--pg-quiet-text");
    ctx.textAlign = isRight ? "right" : "left";
    ctx.textBaseline = "bottom"; // where curves that rise or fall leave space
    ctx.fillText(label, at + (isRight ? -4 : 4) * ratio, bbox.top + bbox.height - 3 * ratio);
  }
  ctx.restore();
}

/** @param {uPlot} plot */
function clipToPlot({ ctx, bbox }) {
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
}

/** With title, legend and address. @param {Chart} chart @returns {Promise<Blob | null>} */
export function toPng(chart) {
  const plot = chart.plot;
  if (!plot) return Promise.resolve(null);
  const ratio = devicePixelRatio || 1,
    top = 26 * ratio,
    ctx = copyCanvas(plot.ctx.canvas, top, top);
  ctx.font = 13 * ratio + "px " + (cssVariable("--pg-font") || "sans-serif");
  ctx.textBaseline = "middle";
  let left = 8 * ratio;
  const write = (/** @type {string} */ text, /** @type {string} */ color) => {
    ctx.fillStyle = color;
    ctx.fillText(text, left, top / 2);
    left += ctx.measureText(text).width + 12 * ratio;
  };
  write(chart.options.label, cssVariable("--pg-text"));
  for (const { series } of chart.readValues()) write(series.label, resolveColor(series.color));
  ctx.textAlign = "right";
  ctx.fillStyle = cssVariable("--pg-quiet-text");
  const { width, height } = ctx.canvas;
  ctx.fillText(location.host + location.pathname, width - 8 * ratio, height - top / 2);
  return new Promise((resolve) => ctx.canvas.toBlob(resolve, "image/png"));
}
