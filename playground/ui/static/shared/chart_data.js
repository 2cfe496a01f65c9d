// The data of a chart: alignment of several series, smoothing, the table and the CSV file.

import uPlot from "../vendor/uplot.js";
import { nearestIndex } from "./store.js";
/** @import { Series } from "./types.js" */

const MAX_DRAWN = 1000; // points of a line; a screen has few more columns

/**
 * Return points as a line, whose key is its label unless `rest` has one.
 * @param {string} label @param {[number, number | null][]} points @param {number} color
 * @param {Partial<Series>} [rest] @returns {Series}
 */
export const toSeries = (label, points, color, rest = {}) => ({
  key: label,
  label,
  x: points.map(([x]) => x),
  y: points.map(([, y]) => y),
  color,
  ...rest,
});

/**
 * Return the exponential moving average, corrected for its start at 0 as in Adam.
 * @param {ArrayLike<number | null>} values
 * @param {number} weight of the previous average: 0 to 0.99 @returns {(number | null)[]}
 */
export function smooth(values, weight) {
  let average = 0,
    correction = 1;
  return Array.from(values, (value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return null;
    average = weight * average + (1 - weight) * value;
    correction *= weight;
    return average / (1 - correction);
  });
}

/**
 * @typedef {"line" | "raw" | "low" | "high"} ColumnKind
 * @typedef {{ series: Series, kind: ColumnKind }} PlotColumn
 */

/**
 * Return the columns that a chart draws, in their order. The raw line is below the smoothed one.
 * @param {Series[]} seriesList @param {boolean} isSmoothed @returns {PlotColumn[]}
 */
export function listColumns(seriesList, isSmoothed) {
  return seriesList.flatMap((series) => {
    const columns = /** @type {PlotColumn[]} */ ([]);
    if (series.low && series.high) columns.push({ series, kind: "high" }, { series, kind: "low" });
    if (isSmoothed && series.isSmoothable !== false) columns.push({ series, kind: "raw" });
    return [...columns, { series, kind: "line" }];
  });
}

/**
 * Return the indices of the points to draw in a range: of a line with more than `MAX_DRAWN` points,
 * the lowest and the highest one of each of `MAX_DRAWN / 2` intervals. A point beyond each end of
 * the range continues the line to the edge.
 * @param {ArrayLike<number>} x @param {ArrayLike<number | null>} y @param {[number, number]} range
 */
export function selectPoints(x, y, [from, to]) {
  const first = Math.max(0, nearestIndex(x, from) - 1),
    end = Math.min(x.length, nearestIndex(x, to) + 2),
    size = Math.ceil((2 * (end - first)) / MAX_DRAWN),
    indices = /** @type {number[]} */ ([]);
  if (size <= 2) return Array.from({ length: end - first }, (_, i) => first + i);
  for (let start = first; start < end; start += size) {
    let [low, high] = [start, start];
    for (let i = start; i < Math.min(end, start + size); i++) {
      if ((y[i] ?? Infinity) < (y[low] ?? Infinity)) low = i;
      if ((y[i] ?? -Infinity) > (y[high] ?? -Infinity)) high = i;
    }
    indices.push(...new Set([Math.min(low, high), Math.max(low, high)]));
  }
  if (indices[indices.length - 1] !== end - 1) indices.push(end - 1); // the latest value
  return indices;
}

/**
 * Return the values of all columns at the union of the positions on the x axis.
 * @param {PlotColumn[]} columns @param {{ smoothing?: number, isLog?: boolean }} options
 * @param {[number, number]} [range] of the x axis that is drawn; without it, all points are exact
 */
export function alignColumns(columns, { smoothing = 0, isLog = false }, range) {
  if (!columns.length) return /** @type {uPlot.AlignedData} */ ([[]]);
  const tables = columns.map(({ series, kind }) => {
    const values =
      kind === "line" && smoothing && series.isSmoothable !== false
        ? smooth(series.y, smoothing)
        : kind === "line" || kind === "raw"
          ? Array.from(series.y)
          : Array.from(/** @type {ArrayLike<number | null>} */ (series[kind]));
    // A logarithm exists for positive values only.
    const drawable = isLog
      ? values.map((value) => (value !== null && value > 0 ? value : null))
      : values;
    if (!range) return /** @type {uPlot.AlignedData} */ ([Array.from(series.x), drawable]);
    const indices = selectPoints(series.x, drawable, range);
    return /** @type {uPlot.AlignedData} */ ([
      indices.map((i) => series.x[i]),
      indices.map((i) => drawable[i]),
    ]);
  });
  return uPlot.join(tables);
}

/** @param {ArrayLike<number | null | undefined>} column @param {number} index */
export function nearestValue(column, index) {
  for (let distance = 0; distance < column.length; distance++)
    for (const at of [index - distance, index + distance]) {
      const value = column[at];
      if (value !== null && value !== undefined) return value;
    }
  return null;
}

/** @param {Series[]} seriesList @param {string} xLabel */
export function toTable(seriesList, xLabel) {
  const columns = listColumns(seriesList, false),
    data = alignColumns(columns, {}),
    suffix = { line: "", raw: "", low: " (low)", high: " (high)" };
  return {
    header: [xLabel, ...columns.map(({ series, kind }) => series.label + suffix[kind])],
    rows: Array.from(data[0], (x, i) => [x, ...data.slice(1).map((column) => column[i] ?? null)]),
  };
}

/**
 * Return at most `count` items of a list, with the first and the last one.
 * @template T
 * @param {T[]} items @param {number} count
 */
export function thin(items, count) {
  if (items.length <= count) return items;
  return Array.from(
    { length: count },
    (_, i) => items[Math.round((i * (items.length - 1)) / (count - 1))],
  );
}
