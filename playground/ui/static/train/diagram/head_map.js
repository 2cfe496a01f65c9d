// The attention weights of one head as a picture of one pixel for each weight, which the browser
// scales. The canvas element stays the same; only its pixels change.
import { colorTable, cssVariable } from "../../shared/palette.js";

const parseColor = (color) => {
  const hex = /^#(..)(..)(..)$/.exec(color);
  return hex ? hex.slice(1).map((each) => parseInt(each, 16)) : [185, 191, 201];
};

/**
 * Paint the weights of a head, with the darkest color for the largest.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} weights row by row
 * @param {number} rows
 * @param {number} columns
 * @param {boolean} isCausal whether later positions are masked
 */
export function paintHeadMap(canvas, weights, rows, columns, isCausal) {
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    image = c.createImageData(columns, rows),
    table = colorTable(),
    scale = 1000 / Math.max(1e-9, ...Array.from(weights)),
    masked = isCausal ? parseColor(cssVariable("--pg-grid")) : null;
  for (let i = 0; i < weights.length; i++) {
    const isMasked = masked && i % columns > Math.floor(i / columns),
      [red, green, blue] = isMasked ? masked : table[Math.round(scale * weights[i])];
    image.data.set([red, green, blue, 255], 4 * i);
  }
  c.putImageData(image, 0, 0);
}
