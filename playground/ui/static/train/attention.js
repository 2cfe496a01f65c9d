// The attention weights of the selected head as a large map.
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { formatToken } from "../shared/format.js";
import { CROSS_CAPTION, DECODER_INPUT, ENCODER_CAPTION } from "../shared/strings.js";
import { html, useMemo } from "../vendor/preact.js";
import { figure } from "./data/snapshots.js";
import { state } from "./state.js";

const MAX_CELL = 31,
  LOW_PAGE = "(max-height: 820px)",
  MAX_HEIGHT = 308, // of the cells
  MAX_HEIGHT_OF_LOW_PAGE = 168;
/** @type {Record<string, { from: string, to: string, reading: string }>} */
const ATTENTION_KINDS = {
  cross: {
    from: "Target position",
    to: "source position",
    reading: CROSS_CAPTION,
  },
  encoder: {
    from: "Source position",
    to: "source position",
    reading: ENCODER_CAPTION,
  },
  decoder: {
    from: DECODER_INPUT,
    to: "decoder input",
    reading:
      "Rows: decoder input (queries). Columns: the same tokens (keys). " +
      "Masked positions are hatched.",
  },
};
// An architecture with one stack has source and target in one sequence.
const SINGLE_STACK_DECODER = {
  from: "Position",
  to: "position",
  reading:
    "Rows: source and target tokens (queries). Columns: the same tokens (keys). " +
    "Masked positions are hatched.",
};
const SINGLE_STACK_ENCODER = {
  from: "Position",
  to: "position",
  reading: "Rows: source tokens, then SOS padding (queries). Columns: the same tokens (keys).",
};

/** @param {any} axes @param {string} kind */
function attentionKind(axes, kind) {
  if (axes.cross || !axes[kind]) return ATTENTION_KINDS[kind];
  return kind === "decoder" ? SINGLE_STACK_DECODER : SINGLE_STACK_ENCODER;
}

/**
 * Return the map of a head, with its caption and the texts of its cells.
 * @param {any} axes
 * @param {number[]} weights thousandths, row by row
 * @param {string} kind
 * @param {string} title
 */
function buildMap(axes, weights, kind, title) {
  const [rows, columns] = axes[kind].map((/** @type {string[]} */ each) => each.map(formatToken)),
    { from, to, reading } = attentionKind(axes, kind),
    maxHeight = matchMedia(LOW_PAGE).matches ? MAX_HEIGHT_OF_LOW_PAGE : MAX_HEIGHT,
    indices = (/** @type {string[]} */ names) => names.map((_, i) => i),
    values = indices(rows).map((row) =>
      indices(columns).map((column) => weights[row * columns.length + column] / 1000),
    );
  return {
    data: {
      rows,
      columns,
      values,
      max: Math.max(1e-3, ...weights.map((/** @type {number} */ weight) => weight / 1000)),
      mask: kind === "decoder" ? values.map((row, i) => row.map((_, column) => column <= i)) : null,
      maxCellSize: Math.min(MAX_CELL, maxHeight / rows.length),
    },
    caption: title + reading,
    describe: (/** @type {number} */ row, /** @type {number} */ column) =>
      `${title}${from} ${row + 1} (${rows[row]}) attends to ${to} ${column + 1} ` +
      `(${columns[column]}) with weight ${values[row][column].toFixed(3)}`,
  };
}

const setCursor = (/** @type {number[] | null} */ cell) => {
  state.hoverCell = cell;
};

export function SelectedHead() {
  const { pass } = figure.value ?? {},
    { selectedKind: kind, selectedHead } = state,
    [layer, head] = selectedHead,
    weights = pass?.attention[kind]?.[layer]?.[head],
    title = `Layer ${layer + 1}, head ${head + 1}. `,
    map = useMemo(() => weights && buildMap(pass.axes, weights, kind, title), [weights]);
  return map
    ? html`<${HeatMapView}
        class="focus"
        label="Attention of the selected head"
        live="off"
        onHover=${setCursor}
        ...${map}
      />`
    : html`<figure class="focus"></figure>`;
}
