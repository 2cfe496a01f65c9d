import { html, useMemo, useState } from "../../vendor/preact.js";
import { setUpCanvas } from "../canvas.js";
import { formatNumber, formatToken } from "../format.js";
import { cellAt, cellText, maxValue, paintHeatMap } from "../heat_map.js";
import { colorScale } from "../palette.js";
import { useCanvas } from "./hooks.js";
/** @import { HeatMapData } from "../types.js" */

export const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
});

/** @param {HeatMapData} data @returns {HeatMapData} */
function withVisibleNames({ rows, columns, ...rest }) {
  const [rowNames, columnNames] = [rows, columns].map((names) =>
    names.map((name) => formatToken(String(name))),
  );
  return { ...rest, rows: rowNames, columns: columnNames };
}

/**
 * A heat map with its scale and the text of the cell at the cursor.
 * @param {{ label: string, data: HeatMapData, caption?: string,
 *   describe?: (row: number, column: number) => string,
 *   onSelect?: (row: number, column: number) => void,
 *   onHover?: (cell: [number, number] | null) => void, class?: string, live?: "polite" | "off" }}
 *   props `caption` is the text below the map without a cursor; `live` is off where the values
 *   change by themselves
 */
export function HeatMapView({
  label,
  data: named,
  caption = "",
  describe,
  onSelect,
  onHover,
  class: className = "",
  live = "polite",
}) {
  const [at, setAt] = useState(/** @type {[number, number] | null} */ (null)),
    data = useMemo(() => withVisibleNames(named), [named]),
    { rows, columns, isSigned } = data,
    // A smaller map has lost the cell.
    cursor = at && at[0] < rows.length && at[1] < columns.length ? at : null,
    canvas = useCanvas((element) => paintHeatMap(element, data, cursor), [data, cursor]),
    text = cursor ? cellText(data, ...cursor, describe) : "";
  /** @param {[number, number] | null} cell */
  const moveTo = (cell) => {
    if (cell?.join() === cursor?.join()) return;
    setAt(cell);
    onHover?.(cell);
  };
  const select = (/** @type {[number, number] | null} */ cell) => cell && onSelect?.(...cell);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") select(cursor);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const move = (/** @type {number} */ axis, /** @type {unknown[]} */ { length }) =>
      Math.max(0, Math.min(length - 1, (cursor?.[axis] ?? -step[axis]) + step[axis]));
    moveTo([move(0, rows), move(1, columns)]);
  };
  return html`<figure class=${`pg-figure pg-heat-map ${className}`}>
    <canvas
      ref=${canvas}
      tabindex="0"
      role="img"
      aria-label=${`${label}. ${text || `${rows.length} rows × ${columns.length} columns`}`}
      onPointerMove=${(/** @type {PointerEvent} */ event) => moveTo(cellAt(data, event))}
      onPointerLeave=${() => moveTo(null)}
      onBlur=${() => moveTo(null)}
      onClick=${(/** @type {MouseEvent} */ event) => select(cellAt(data, event))}
      onKeyDown=${onKeyDown}
    ></canvas>
    <${ColorScale} max=${maxValue(data)} isSigned=${isSigned} />
    <figcaption aria-live=${live}>${text || caption}</figcaption>
  </figure>`;
}

/** @param {{ max: number, isSigned?: boolean }} props */
export function ColorScale({ max, isSigned }) {
  const ref = useCanvas((canvas) => paintScale(canvas, max, isSigned), [max, isSigned]);
  return html`<div class="pg-scale">
    <span>${isSigned ? "−" + formatNumber(max) : "0"}</span>
    <canvas ref=${ref} aria-hidden="true"></canvas>
    <span>${formatNumber(max)}</span>
  </div>`;
}

/** @param {HTMLCanvasElement} canvas @param {number} max @param {boolean} [isSigned] */
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
