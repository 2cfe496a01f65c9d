import { html, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { setUpCanvas } from "../canvas.js";
import { formatNumber } from "../format.js";
import { HeatMap, maxValue } from "../heat_map.js";
import { colorScale } from "../palette.js";
import { useCanvas } from "./use_canvas.js";

/** @import { HeatMapData } from "../types.js" */

/**
 * A heat map with its scale and the text of the cell at the cursor.
 * @param {{
 *   label: string,
 *   data: HeatMapData,
 *   caption?: string,
 *   describe?: (row: number, column: number) => string,
 *   onSelect?: (row: number, column: number) => void,
 *   onHover?: (cell: [number, number] | null) => void,
 *   class?: string,
 *   live?: "polite" | "off",
 * }} props `caption` is the text below the map without a cursor; `live` is off where the values
 *   change by themselves
 */
export function HeatMapView({
  label,
  data,
  caption = "",
  describe,
  onSelect,
  onHover,
  class: className = "",
  live = "polite",
}) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    map = useRef(/** @type {HeatMap | null} */ (null)),
    [cell, setCell] = useState("");
  useLayoutEffect(() => {
    const element = /** @type {HTMLCanvasElement} */ (canvas.current);
    map.current = new HeatMap(element, {
      label,
      describe,
      onSelect,
      onHover: (text, at) => {
        setCell(text);
        onHover?.(at);
      },
    });
    return map.current.observe();
  }, []);
  // A layout effect changes the map together with its heading. After an ordinary effect, a key
  // press in between would describe the previous map.
  useLayoutEffect(() => {
    const current = /** @type {HeatMap} */ (map.current);
    current.label = label;
    if (describe) current.describe = describe;
    if (onSelect) current.onSelect = onSelect;
    current.setData(data);
    setCell(current.cellText());
  }, [label, data, describe, onSelect]);
  return html`<figure class=${`pg-figure pg-heat-map ${className}`}>
    <canvas ref=${canvas}></canvas>
    <${ColorScale} max=${maxValue(data)} isSigned=${data.isSigned} />
    <figcaption aria-live=${live}>${cell || caption}</figcaption>
  </figure>`;
}

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
