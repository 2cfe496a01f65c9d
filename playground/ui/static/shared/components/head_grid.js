import { html, useRef } from "../../vendor/preact.js";
import { paintThumbnail } from "../heat_map.js";
import { useCanvas } from "./use_canvas.js";

/** @import { HeatMapData } from "../types.js" */

const MIN_COLUMNS = 4; // so that the maps of models with few heads are not large

/**
 * The attention maps of all heads, a row for each layer. The arrow keys move between heads.
 * @param {{
 *   label: string,
 *   heads: HeatMapData[][],
 *   selected: [number, number],
 *   onSelect: (layer: number, head: number) => void,
 * }} props
 */
export function HeadGrid({ label, heads, selected, onSelect }) {
  const grid = useRef(/** @type {HTMLElement | null} */ (null)),
    columns = Math.max(...heads.map((layer) => layer.length));
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = selected[0] * columns + selected[1] + step,
      layer = Math.floor(at / columns);
    if (!heads[layer]) return;
    onSelect(layer, at % columns);
    grid.current?.querySelectorAll("button")[at].focus();
  };
  return html`<div
    ref=${grid}
    class="pg-head-grid"
    role="group"
    aria-label=${`${label}; use the arrow keys to move`}
    style=${{ "--pg-heads": Math.max(MIN_COLUMNS, columns) }}
    onKeyDown=${onKeyDown}
  >
    ${heads.map((maps, layer) => [
      html`<span key=${layer}>layer ${layer + 1}</span>`,
      ...maps.map(
        (map, head) =>
          html`<${Head}
            key=${`${layer}.${head}`}
            layer=${layer}
            head=${head}
            map=${map}
            isSelected=${layer === selected[0] && head === selected[1]}
            onSelect=${onSelect}
          />`,
      ),
    ])}
  </div>`;
}

/**
 * @param {{
 *   layer: number,
 *   head: number,
 *   map: HeatMapData,
 *   isSelected: boolean,
 *   onSelect: (layer: number, head: number) => void,
 * }} props
 */
function Head({ layer, head, map, isSelected, onSelect }) {
  const name = `layer ${layer + 1}, head ${head + 1}`,
    canvas = useCanvas((element) => paintThumbnail(element, map), [map]);
  return html`<button
    type="button"
    style=${head ? undefined : { gridColumnStart: 2 }}
    title=${name}
    aria-label=${name}
    aria-pressed=${String(isSelected)}
    tabindex=${isSelected ? 0 : -1}
    onClick=${() => onSelect(layer, head)}
  >
    <canvas ref=${canvas}></canvas>
  </button>`;
}
