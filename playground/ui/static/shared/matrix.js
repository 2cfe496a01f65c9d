// Heat maps of the tabs without components: the data of the server, on a canvas of the tab.
import { unpackWeights as decodeWeights } from "./attention_weights.js";
import { HeatMap, paintThumbnail as paintHeatMapThumbnail } from "./heat_map.js";

/** @type {WeakMap<HTMLCanvasElement, HeatMap>} */
const heatMaps = new WeakMap();

/** Decode weights once. @param {any} data */
export function unpackWeights(data) {
  data.all ??= decodeWeights(data);
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
