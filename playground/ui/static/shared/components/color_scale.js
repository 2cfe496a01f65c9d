import { html } from "../../vendor/preact.js";
import { setUpCanvas } from "../canvas.js";
import { formatNumber } from "../format.js";
import { colorScale } from "../palette.js";
import { useCanvas } from "./use_canvas.js";

/**
 * The colors from 0 to the largest value, or from the largest negative to the largest positive.
 * @param {{ max: number, isSigned?: boolean }} props
 */
export function ColorScale({ max, isSigned }) {
  const ref = useCanvas((canvas) => paintScale(canvas, max, isSigned), [max, isSigned]);
  return html`<div class="pg-scale">
    <span>${isSigned ? "−" + formatNumber(max) : "0"}</span>
    <canvas ref=${ref} aria-hidden="true"></canvas>
    <span>${formatNumber(max)}</span>
  </div>`;
}

/**
 * Draw a legend from 0 to the largest value into a canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {number} max
 * @param {boolean} [isSigned]
 */
export function paintScale(canvas, max, isSigned = false) {
  if (!canvas.clientWidth) return;
  const [ctx, width, height] = setUpCanvas(canvas),
    color = colorScale(max, isSigned),
    from = isSigned ? -max : 0;
  for (let x = 0; x < width; x++) {
    ctx.fillStyle = `rgb(${color(from + ((max - from) * x) / Math.max(1, width - 1)).join()})`;
    ctx.fillRect(x, 0, 1, height);
  }
}
