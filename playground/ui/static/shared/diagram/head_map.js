// The attention weights of the selected head as a large map.
import { HeatMapView } from "../components/heat_map_view.js";
import { formatToken } from "../format.js";
import { toRows } from "../attention_weights.js";
import { describeAxes } from "../strings.js";
import { html, useMemo } from "../../vendor/preact.js";
import { describeWeight } from "./describe.js";
/** @import { Selection } from "./structure.js" */

const MAX_CELL = 31,
  LOW_PAGE = "(max-height: 820px)",
  MAX_HEIGHT = 308, // of the cells
  MAX_HEIGHT_OF_LOW_PAGE = 168;
/** @param {number} nRows */
const cellSize = (nRows) =>
  Math.min(MAX_CELL, (matchMedia(LOW_PAGE).matches ? MAX_HEIGHT_OF_LOW_PAGE : MAX_HEIGHT) / nRows);

/**
 * Return the map of a head, with its caption and the texts of its cells.
 * @param {any} pass @param {Selection} head @param {number | null} row to highlight
 * @param {number | undefined} maxCellSize @param {string} title
 */
function buildMap(
  { architecture, axes, attention },
  { kind, layer, head },
  row,
  maxCellSize,
  title,
) {
  const names = axes[kind].map((/** @type {string[]} */ each) => each.map(formatToken)),
    [rows, columns] = names,
    values = toRows(attention[kind][layer][head], columns.length);
  return {
    data: {
      rows,
      columns,
      values,
      max: Math.max(1e-3, ...values.flat()),
      mask: kind === "decoder" ? values.map((each, i) => each.map((_, key) => key <= i)) : null,
      row,
      maxCellSize: maxCellSize ?? cellSize(rows.length),
    },
    caption: title + describeAxes(kind, !axes.cross, architecture),
    describe: (/** @type {number} */ query, /** @type {number} */ key) =>
      title + describeWeight(kind, names, query, key, values[query][key]),
  };
}

/**
 * @param {{ pass: any, selected: Selection, row: number | null, maxCellSize?: number,
 *   title?: string, live?: "polite" | "off", onHover?: (cell: [number, number] | null) => void,
 *   onSelect?: (row: number, column: number) => void }} props `row` is highlighted; the texts begin
 *   with `title`
 */
export function SelectedHead({
  pass,
  selected,
  row,
  maxCellSize,
  title = `Layer ${selected.layer + 1}, head ${selected.head + 1}. `,
  ...others
}) {
  const weights = pass?.attention[selected.kind]?.[selected.layer]?.[selected.head],
    map = useMemo(
      () => weights && buildMap(pass, selected, row, maxCellSize, title),
      [weights, row, maxCellSize],
    );
  return map
    ? html`<${HeatMapView}
        class="focus"
        label="Attention of the selected head"
        live="off"
        ...${map}
        ...${others}
      />`
    : html`<figure class="focus"></figure>`;
}
