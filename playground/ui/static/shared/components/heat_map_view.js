import { html, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";
import { HeatMap, maxValue } from "../heat_map.js";
import { ColorScale } from "./color_scale.js";

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
