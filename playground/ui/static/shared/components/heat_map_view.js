import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { HeatMap, maxValue, paintScale, paintThumbnail } from "../heat_map.js";
import { formatNumber } from "../format.js";
import { onThemeChange } from "../palette.js";

/** @import { HeatMapData } from "../types.js" */

/**
 * A heat map with its scale and the text of the cell at the cursor.
 * @param {{
 *   label: string,
 *   data: HeatMapData,
 *   caption?: string,
 *   describe?: (row: number, column: number) => string,
 *   onSelect?: (row: number, column: number) => void,
 * }} props `caption` stands below the map while the cursor is outside
 */
export function HeatMapView({ label, data, caption = "", describe, onSelect }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    map = useRef(/** @type {HeatMap | null} */ (null)),
    [cell, setCell] = useState("");
  useLayoutEffect(() => {
    const element = /** @type {HTMLCanvasElement} */ (canvas.current);
    map.current = new HeatMap(element, { label, describe, onSelect, onHover: setCell });
    return map.current.observe();
  }, []);
  // With the heading around it, not a frame later: a key would describe a cell of the last map.
  useLayoutEffect(() => {
    const current = /** @type {HeatMap} */ (map.current);
    current.label = label;
    if (describe) current.describe = describe;
    if (onSelect) current.onSelect = onSelect;
    current.setData(data);
    setCell(current.cellText());
  }, [label, data, describe, onSelect]);
  return html`<figure class="pg-figure pg-heat-map">
    <canvas ref=${canvas}></canvas>
    <${Scale} max=${maxValue(data)} isSigned=${data.isSigned} />
    <figcaption aria-live="polite">${cell || caption}</figcaption>
  </figure>`;
}

/**
 * The colours from 0 to the largest value, or from the largest negative to the largest positive.
 * @param {{ max: number, isSigned?: boolean }} props
 */
function Scale({ max, isSigned }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const paint = () =>
      paintScale(/** @type {HTMLCanvasElement} */ (canvas.current), max, isSigned);
    paint();
    return onThemeChange(paint);
  }, [max, isSigned]);
  return html`<div class="pg-scale">
    <span>${isSigned ? "−" + formatNumber(max) : "0"}</span>
    <canvas ref=${canvas} aria-hidden="true"></canvas>
    <span>${formatNumber(max)}</span>
  </div>`;
}

/** A small heat map without labels. @param {{ data: HeatMapData }} props */
export function HeatMapThumbnail({ data }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const element = /** @type {HTMLCanvasElement} */ (canvas.current),
      paint = () => paintThumbnail(element, data),
      stopTheme = onThemeChange(paint),
      resize = new ResizeObserver(paint);
    paint();
    resize.observe(element);
    return () => {
      stopTheme();
      resize.disconnect();
    };
  }, [data]);
  return html`<canvas ref=${canvas} class="pg-thumbnail"></canvas>`;
}
