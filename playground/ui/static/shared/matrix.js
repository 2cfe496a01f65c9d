// Heat maps of the tabs without components: the data of the server, on a canvas of the tab.
import { HeatMap, paintThumbnail as paintHeatMapThumbnail } from "./heat_map.js";

/** @type {WeakMap<HTMLCanvasElement, HeatMap>} */
const heatMaps = new WeakMap();

// Decode weights: thousandths in two bytes each, head after head.
export function unpackWeights(data) {
  if (data.all) return data.all;
  const bytes = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0)),
    view = new DataView(bytes.buffer),
    numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = view.getInt16(2 * i, true) / 1000;
  const rows = data.rows.length,
    columns = data.columns.length;
  const row = (l, h, r) => {
    const at = ((l * data.heads + h) * rows + r) * columns;
    return numbers.subarray(at, at + columns);
  };
  data.all = Array.from({ length: data.layers }, (_, l) =>
    Array.from({ length: data.heads }, (_, h) =>
      Array.from({ length: rows }, (_, r) => row(l, h, r)),
    ),
  );
  return data.all;
}

/**
 * @param {any} matrix `possible` is false for masked cells, `chosen` is the selected cell
 * @returns {import("./types.js").HeatMapData}
 */
const toHeatMapData = ({ rows, columns, weights, possible, max, signed, size, chosen }) => ({
  rows,
  columns,
  values: weights,
  mask: possible,
  max,
  isSigned: signed,
  maxCellSize: size,
  selected: chosen,
});

/** @param {HTMLCanvasElement} canvas @param {any} matrix */
export const paintThumbnail = (canvas, matrix) =>
  paintHeatMapThumbnail(canvas, toHeatMapData(matrix));

/**
 * Draw a matrix with tokens on both axes. `hover(row, column)` returns the description of a cell;
 * `choose` is called on a click or Enter. `caption` shows the description, and its resting text
 * without a cell.
 * @param {HTMLCanvasElement} canvas
 * @param {any} matrix
 * @param {{
 *   hover?: (row: number, column: number) => string,
 *   choose?: ((row: number, column: number) => void) | null,
 *   caption?: HTMLElement | null,
 * }} [options]
 */
export function mountMatrix(canvas, matrix, { hover = () => "", choose, caption } = {}) {
  const map = heatMaps.get(canvas) ?? new HeatMap(canvas, { label: "A heat map" }),
    restingText = caption?.dataset.resting || "";
  heatMaps.set(canvas, map);
  map.describe = hover;
  map.onSelect = choose ?? (() => {});
  map.onHover = (text) => {
    if (caption) caption.textContent = text || restingText;
  };
  map.setData(toHeatMapData(matrix));
  map.onHover(map.cellText());
}
