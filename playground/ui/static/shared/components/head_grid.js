import { html, useEffect, useRef } from "../../vendor/preact.js";
import { paintThumbnail } from "../heat_map.js";
import { onThemeChange } from "../palette.js";

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
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (grid.current),
      maps = heads.flat();
    const paint = () =>
      element
        .querySelectorAll("canvas")
        .forEach((canvas, i) => maps[i] && paintThumbnail(canvas, maps[i]));
    paint();
    const stopTheme = onThemeChange(paint),
      resize = new ResizeObserver(paint);
    resize.observe(element);
    return () => {
      stopTheme();
      resize.disconnect();
    };
  }, [heads]);
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
    ${heads.map((layer, l) => [
      html`<span key=${l}>layer ${l + 1}</span>`,
      ...layer.map((_, h) => renderHead(l, h, selected, onSelect)),
    ])}
  </div>`;
}

/**
 * @param {number} layer
 * @param {number} head
 * @param {[number, number]} selected
 * @param {(layer: number, head: number) => void} onSelect
 */
function renderHead(layer, head, selected, onSelect) {
  const isSelected = layer === selected[0] && head === selected[1],
    name = `layer ${layer + 1}, head ${head + 1}`;
  return html`<button
    key=${`${layer}.${head}`}
    type="button"
    style=${head ? undefined : { gridColumnStart: 2 }}
    title=${name}
    aria-label=${name}
    aria-pressed=${String(isSelected)}
    tabindex=${isSelected ? 0 : -1}
    onClick=${() => onSelect(layer, head)}
  >
    <canvas></canvas>
  </button>`;
}
