import { cssVariable } from "./palette.js";

/**
 * Set the size of a canvas for the resolution of the screen, and clear it.
 * @param {HTMLCanvasElement} canvas @param {number} [height] in CSS pixels
 * @returns {[CanvasRenderingContext2D, number, number]} the context, and width and height in CSS
 *   pixels
 */
export function setUpCanvas(canvas, height) {
  const ratio = devicePixelRatio || 1,
    width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  height = height || canvas.clientHeight;
  const w = Math.round(width * ratio),
    h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return [c, width, height];
}

/**
 * Paint one pixel for each cell; the browser scales the picture. The element stays the same.
 * @param {HTMLCanvasElement} canvas @param {number} rows @param {number} columns
 * @param {(row: number, column: number) => number[] | null} colorOf red, green, blue and opacity,
 *   which is 255 unless given; null is transparent
 */
export function paintPixels(canvas, rows, columns, colorOf) {
  if (canvas.width !== columns || canvas.height !== rows)
    Object.assign(canvas, { width: columns, height: rows });
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    image = c.createImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; row++)
    for (let column = 0; column < columns; column++, at += 4) {
      const [red, green, blue, alpha = 255] = colorOf(row, column) ?? [0, 0, 0, 0];
      image.data.set([red, green, blue, alpha], at);
    }
  c.putImageData(image, 0, 0);
}

/**
 * Return the context of a copy of a canvas on the background of the page.
 * @param {HTMLCanvasElement} source
 * @param {number} [top] the space above it, in pixels of the canvas
 * @param {number} [bottom] the space below it
 */
export function copyCanvas(source, top = 0, bottom = 0) {
  const canvas = document.createElement("canvas"),
    ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  canvas.width = source.width;
  canvas.height = source.height + top + bottom;
  ctx.fillStyle = cssVariable("--pg-background") || "white";
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(source, 0, top);
  return ctx;
}
