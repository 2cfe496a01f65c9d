// The data of a chart: alignment of several series, the table and the CSV file.

import uPlot from "../vendor/uplot.js";
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
 * @typedef {"line" | "low" | "high"} ColumnKind
 * @typedef {{ series: Series, kind: ColumnKind }} PlotColumn
 */

/**
 * Return the columns that a chart draws, in their order.
 * @param {Series[]} seriesList @returns {PlotColumn[]}
 */
export function listColumns(seriesList) {
  return seriesList.flatMap((series) => {
    const columns = /** @type {PlotColumn[]} */ ([]);
    if (series.low && series.high) columns.push({ series, kind: "high" }, { series, kind: "low" });
    return [...columns, { series, kind: "line" }];
  });
}

/**
 * Return the indices of the points to draw: of a line with more than `MAX_DRAWN` points, the lowest
 * and the highest one of each of `MAX_DRAWN / 2` intervals.
 * @param {ArrayLike<number | null>} y
 */
function selectPoints(y) {
  const size = Math.ceil((2 * y.length) / MAX_DRAWN),
    indices = /** @type {number[]} */ ([]);
  if (size <= 2) return Array.from(y, (_, i) => i);
  for (let start = 0; start < y.length; start += size) {
    let [low, high] = [start, start];
    for (let i = start; i < Math.min(y.length, start + size); i++) {
      if ((y[i] ?? Infinity) < (y[low] ?? Infinity)) low = i;
      if ((y[i] ?? -Infinity) > (y[high] ?? -Infinity)) high = i;
    }
    indices.push(...new Set([Math.min(low, high), Math.max(low, high)]));
  }
  if (indices[indices.length - 1] !== y.length - 1) indices.push(y.length - 1); // the latest value
  return indices;
}

/**
 * Return the values of all columns at the union of the positions on the x axis.
 * @param {PlotColumn[]} columns
 * @param {{ isLog?: boolean, isThinned?: boolean }} options `isThinned` leaves points out that no
 *   screen can show
 */
export function alignColumns(columns, { isLog = false, isThinned = false }) {
  if (!columns.length) return /** @type {uPlot.AlignedData} */ ([[]]);
  const tables = columns.map(({ series, kind }) => {
    const values = /** @type {ArrayLike<number | null>} */ (series[kind === "line" ? "y" : kind]),
      // A logarithm exists for positive values only.
      drawable = Array.from(values, (value) =>
        isLog && !(value !== null && value > 0) ? null : value,
      ),
      indices = isThinned ? selectPoints(drawable) : drawable.map((_, i) => i);
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
  const columns = listColumns(seriesList),
    data = alignColumns(columns, {}),
    suffix = { line: "", low: " (low)", high: " (high)" };
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
