// A heat map on a canvas: one pixel per cell, scaled up, with labels and a cursor for pointer and
// keys. Masked cells are hatched, to distinguish them from 0.

import { paintPixels, setUpCanvas } from "./canvas.js";
import { colorScale, cssVariable } from "./palette.js";
/** @import { HeatMapData } from "./types.js" */

const MAX_CELL = 44; // pixels
const HATCH_DISTANCE = 6;
const MAX_COLUMN_LABEL = 10; // characters
const LABEL_GAP = 4; // pixels between labels
/** @type {HTMLCanvasElement | undefined} */
let scratch;

/** @param {HeatMapData} data @param {number} row @param {number} column */
function isEmptyCell({ values, mask }, row, column) {
  const value = values[row][column];
  return (mask && !mask[row][column]) || value === null || value === undefined;
}

/** Return the value with the strongest color. @param {HeatMapData} data */
export function maxValue({ values, max, isSigned }) {
  if (max) return max;
  if (!isSigned) return 1;
  let largest = 1e-9;
  for (const row of values)
    for (let k = 0; k < row.length; k++) largest = Math.max(largest, Math.abs(row[k] ?? 0));
  return largest;
}

/**
 * @param {CanvasRenderingContext2D} ctx @param {HeatMapData} data
 * @param {{ left: number, top: number, width: number, height: number }} box
 */
function paintCells(ctx, data, { left, top, width, height }) {
  const rows = data.values.length,
    columns = data.values[0].length,
    color = colorScale(maxValue(data), data.isSigned);
  scratch ??= document.createElement("canvas");
  const empty = /** @type {[number, number][]} */ ([]);
  paintPixels(scratch, rows, columns, (row, column) => {
    if (!isEmptyCell(data, row, column))
      return color(/** @type {number} */ (data.values[row][column]));
    empty.push([row, column]);
    return null;
  });
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(scratch, left, top, width, height);
  if (!empty.length) return;
  const cellWidth = width / columns,
    cellHeight = height / rows;
  ctx.save();
  ctx.beginPath();
  for (const [row, column] of empty)
    ctx.rect(left + column * cellWidth, top + row * cellHeight, cellWidth, cellHeight);
  ctx.clip();
  hatch(ctx, { left, top, width, height });
  ctx.restore();
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {{ left: number, top: number, width: number, height: number }} box
 */
function hatch(ctx, { left, top, width, height }) {
  ctx.strokeStyle = cssVariable("--pg-hatch");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let offset = -height; offset < width; offset += HATCH_DISTANCE) {
    ctx.moveTo(left + offset, top + height);
    ctx.lineTo(left + offset + height, top);
  }
  ctx.stroke();
}

/** @param {HeatMapData} data @param {number} width of the canvas */
export function layoutHeatMap({ rows, columns, maxCellSize = MAX_CELL }, width) {
  const longest = (/** @type {string[]} */ names) =>
    Math.max(1, ...names.map((name) => String(name).length));
  const left = Math.max(28, 9 + 8 * longest(rows)),
    isTall = longest(columns) > 4,
    top = isTall ? 12 + 7 * Math.min(MAX_COLUMN_LABEL, longest(columns)) : 22,
    available = Math.max(1, (width - left - 2) / columns.length),
    minHeight = rows.length > 30 ? 6 : 12;
  return {
    left,
    top,
    isTall,
    cellWidth: Math.min(maxCellSize, available),
    cellHeight: Math.min(maxCellSize, Math.max(available, minHeight)),
  };
}

/** @param {HeatMapData} data @param {MouseEvent} event @returns {[number, number] | null} */
export function cellAt(data, { offsetX, offsetY, currentTarget }) {
  const { clientWidth } = /** @type {Element} */ (currentTarget),
    { left, top, cellWidth, cellHeight } = layoutHeatMap(data, clientWidth),
    row = Math.floor((offsetY - top) / cellHeight),
    column = Math.floor((offsetX - left) / cellWidth);
  return row in data.rows && column in data.columns ? [row, column] : null;
}

/**
 * @param {HeatMapData} data @param {number} row @param {number} column
 * @param {(row: number, column: number) => string} [describe] of a cell with a value
 */
export function cellText(data, row, column, describe) {
  const { rows, columns, values, mask } = data;
  if (mask && !mask[row][column])
    return (
      `${rows[row]} cannot attend to ${columns[column]} here: ` +
      "it is a later position, or padding."
    );
  if (isEmptyCell(data, row, column)) return `${rows[row]}, ${columns[column]}: no value`;
  return (
    describe?.(row, column) ??
    `${rows[row]}, ${columns[column]}: ${Number(values[row][column]).toFixed(3)}`
  );
}

/**
 * @param {HTMLCanvasElement} canvas @param {HeatMapData} data
 * @param {[number, number] | null} cursor
 */
export function paintHeatMap(canvas, data, cursor) {
  const layout = layoutHeatMap(data, canvas.clientWidth),
    { left, top, cellWidth, cellHeight } = layout,
    width = cellWidth * data.columns.length,
    height = cellHeight * data.rows.length,
    [ctx] = setUpCanvas(canvas, Math.round(top + height + 2));
  paintLabels(ctx, data, layout);
  paintCells(ctx, data, { left, top, width, height });
  ctx.strokeStyle = cssVariable("--pg-border");
  ctx.lineWidth = 1;
  ctx.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  ctx.lineWidth = 2;
  for (const [cell, color] of /** @type {[[number, number] | null | undefined, string][]} */ ([
    [data.selected, "--pg-accent"],
    [cursor, "--pg-mark"],
  ])) {
    if (!cell) continue;
    ctx.strokeStyle = cssVariable(color);
    ctx.strokeRect(left + cell[1] * cellWidth, top + cell[0] * cellHeight, cellWidth, cellHeight);
  }
  if (data.row !== null && data.row !== undefined) {
    ctx.strokeStyle = cssVariable("--pg-accent");
    ctx.strokeRect(left, top + data.row * cellHeight, width, cellHeight);
  }
}

/**
 * Return the columns whose labels fit: every k-th one, and the last one.
 * @param {string[]} names @param {number} cellWidth
 * @param {(name: string) => number} widthOf the width of a label in pixels
 */
export function labeledColumns(names, cellWidth, widthOf) {
  const last = names.length - 1,
    widths = names.map(widthOf);
  const fits = (/** @type {number} */ step) => {
    for (let i = step; i <= last; i += step)
      if ((widths[i - step] + widths[i]) / 2 + LABEL_GAP > step * cellWidth) return false;
    return true;
  };
  let step = 1;
  while (!fits(step)) step++;
  const others = names.map((_, i) => i).filter((i) => i % step === 0 && i < last),
    previous = others.at(-1) ?? 0,
    shift = Math.max(0, (widths[last] - cellWidth) / 2), // of the last one, which ends with the map
    isCrowded =
      (widths[previous] + widths[last]) / 2 + LABEL_GAP > (last - previous) * cellWidth - shift;
  return [...(isCrowded && others.length > 1 ? others.slice(0, -1) : others), last];
}

/**
 * @param {CanvasRenderingContext2D} ctx @param {HeatMapData} data
 * @param {ReturnType<typeof layoutHeatMap>} layout
 */
function paintLabels(ctx, { rows, columns }, { left, top, isTall, cellWidth, cellHeight }) {
  const every = (/** @type {number} */ size, /** @type {number} */ min) =>
    Math.max(1, Math.ceil(min / size));
  const fontSize = Math.min(cellWidth, cellHeight) < 13 ? 9 : 12;
  ctx.font = fontSize + "px " + cssVariable("--pg-mono");
  ctx.textBaseline = "middle";
  ctx.fillStyle = cssVariable("--pg-text");
  const widthOf = (/** @type {string} */ name) => (isTall ? 7 : fontSize * 0.6 * name.length);
  for (const column of labeledColumns(columns, cellWidth, widthOf)) {
    // A label that is wider than its column ends with the map.
    const middle = left + (column + 0.5) * cellWidth,
      end = left + columns.length * cellWidth;
    ctx.save();
    ctx.translate(
      isTall ? middle : Math.min(middle, end - widthOf(columns[column]) / 2),
      isTall ? top - 6 : top / 2,
    );
    if (isTall) ctx.rotate(-Math.PI / 2);
    ctx.textAlign = isTall ? "left" : "center";
    ctx.fillText([...columns[column]].slice(0, MAX_COLUMN_LABEL).join(""), 0, 0);
    ctx.restore();
  }
  ctx.textAlign = "right";
  rows.forEach((name, row) => {
    if (row % every(cellHeight, 10) === 0)
      ctx.fillText(name, left - 8, top + (row + 0.5) * cellHeight);
  });
}
