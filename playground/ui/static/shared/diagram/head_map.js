// The attention weights of the selected head as a large map.
import { HeatMapView } from "../components/heat_map_view.js";
import { formatToken } from "../format.js";
import { CROSS_CAPTION, ENCODER_CAPTION, SINGLE_STACK_CAPTIONS } from "../strings.js";
import { html, useMemo } from "../../vendor/preact.js";
import { nameQuery } from "./describe.js";

/** @import { Selection } from "./structure.js" */

const MAX_CELL = 31,
  LOW_PAGE = "(max-height: 820px)",
  MAX_HEIGHT = 308, // of the cells
  MAX_HEIGHT_OF_LOW_PAGE = 168;
/** @type {Record<string, string>} */
const CAPTIONS = {
  cross: CROSS_CAPTION,
  encoder: ENCODER_CAPTION,
  decoder:
    "Rows: decoder input (queries). Columns: the same tokens (keys). " +
    "Masked positions are hatched.",
};

/**
 * Return the map of a head, with its caption and the texts of its cells.
 * @param {any} pass
 * @param {Selection} head
 * @param {number | null} row to highlight
 */
function buildMap({ axes, attention }, { kind, layer, head }, row) {
  const [rows, columns] = axes[kind].map((/** @type {string[]} */ each) => each.map(formatToken)),
    weights = attention[kind][layer][head],
    title = `Layer ${layer + 1}, head ${head + 1}. `,
    captions = /** @type {Record<string, string>} */ (
      axes.cross ? CAPTIONS : SINGLE_STACK_CAPTIONS
    ),
    maxHeight = matchMedia(LOW_PAGE).matches ? MAX_HEIGHT_OF_LOW_PAGE : MAX_HEIGHT,
    indices = (/** @type {string[]} */ names) => names.map((_, i) => i),
    values = indices(rows).map((query) =>
      indices(columns).map((key) => weights[query * columns.length + key] / 1000),
    );
  return {
    data: {
      rows,
      columns,
      values,
      max: Math.max(1e-3, ...values.flat()),
      mask: kind === "decoder" ? values.map((each, i) => each.map((_, key) => key <= i)) : null,
      row,
      maxCellSize: Math.min(MAX_CELL, maxHeight / rows.length),
    },
    caption: title + captions[kind],
    describe: (/** @type {number} */ query, /** @type {number} */ key) =>
      `${title}${nameQuery(kind, rows, query)} attends to ${columns[key]} ` +
      `(position ${key + 1}) with weight ${values[query][key].toFixed(3)}`,
  };
}

/**
 * @param {{
 *   pass: any,
 *   selected: Selection,
 *   row: number | null,
 *   onHover?: (cell: [number, number] | null) => void,
 *   onSelect?: (row: number, column: number) => void,
 * }} props `row` is highlighted
 */
export function SelectedHead({ pass, selected, row, ...handlers }) {
  const weights = pass?.attention[selected.kind]?.[selected.layer]?.[selected.head],
    map = useMemo(() => weights && buildMap(pass, selected, row), [weights, row]);
  return map
    ? html`<${HeatMapView}
        class="focus"
        label="Attention of the selected head"
        live="off"
        ...${map}
        ...${handlers}
      />`
    : html`<figure class="focus"></figure>`;
}
