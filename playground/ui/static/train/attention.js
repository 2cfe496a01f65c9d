// The attention weights of the selected head as a large map, with a cursor.
import { setUpCanvas } from "../shared/canvas.js";
import { ColorScale } from "../shared/components/color_scale.js";
import { formatToken } from "../shared/format.js";
import { cssVariable, scaleColor } from "../shared/palette.js";
import { CROSS_CAPTION, DECODER_INPUT, ENCODER_CAPTION } from "../shared/strings.js";
import { useCanvas } from "../shared/components/use_canvas.js";
import { html } from "../vendor/preact.js";
import { figure } from "./data/snapshots.js";
import { state } from "./state.js";

const LEFT = 40, // of the cells, beside the names of the rows
  TOP = 22,
  MAX_CELL = 31,
  LOW_PAGE = "(max-height: 820px)",
  MAX_HEIGHT = 330,
  MAX_HEIGHT_OF_LOW_PAGE = 190;
const KEY_MOVES = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
});
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

/** @param {any} axes */
function attentionKind(axes) {
  const kind = state.selectedKind;
  if (axes.cross || !axes[kind]) return ATTENTION_KINDS[kind];
  return kind === "decoder" ? SINGLE_STACK_DECODER : SINGLE_STACK_ENCODER;
}

/**
 * The tokens of the rows and columns of the map, and the size of a cell.
 * @param {any} pass
 * @param {number} width of the canvas
 */
function mapLayout({ axes }, width) {
  const [rows, columns] = axes[state.selectedKind],
    maxHeight = matchMedia(LOW_PAGE).matches ? MAX_HEIGHT_OF_LOW_PAGE : MAX_HEIGHT;
  return {
    rows: /** @type {string[]} */ (rows).map(formatToken),
    columns: /** @type {string[]} */ (columns).map(formatToken),
    size: Math.min(MAX_CELL, (width - LEFT) / columns.length, (maxHeight - TOP) / rows.length),
  };
}

/** @param {number} row @param {number} column */
const isMasked = (row, column) => state.selectedKind === "decoder" && column > row;

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} weights
 * @param {ReturnType<typeof mapLayout>} layout
 */
function paintCells(context, weights, { rows, columns, size }) {
  rows.forEach((_, row) =>
    columns.forEach((_, column) => {
      if (isMasked(row, column)) return;
      context.fillStyle = scaleColor(weights[row * columns.length + column]);
      context.fillRect(LEFT + column * size, TOP + row * size, Math.ceil(size), Math.ceil(size));
    }),
  );
}

/**
 * Hatch masked positions, so that they differ from weights of zero.
 * @param {CanvasRenderingContext2D} context
 * @param {ReturnType<typeof mapLayout>} layout
 */
function paintMask(context, { rows, columns, size }) {
  const height = rows.length * size;
  context.save();
  context.beginPath();
  rows.forEach((_, row) =>
    context.rect(
      LEFT + (row + 1) * size,
      TOP + row * size,
      (columns.length - row - 1) * size,
      size,
    ),
  );
  context.clip();
  context.strokeStyle = cssVariable("--pg-hatch");
  context.lineWidth = 1;
  context.beginPath();
  for (let offset = -height; offset < columns.length * size; offset += 6) {
    context.moveTo(LEFT + offset, TOP + height);
    context.lineTo(LEFT + offset + height, TOP);
  }
  context.stroke();
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {ReturnType<typeof mapLayout>} layout
 */
function paintNames(context, { rows, columns, size }) {
  context.font = (size < 16 ? 9 : 12) + "px " + cssVariable("--pg-mono");
  context.textBaseline = "middle";
  context.fillStyle = cssVariable("--pg-text");
  context.textAlign = "center";
  columns.forEach((token, i) => context.fillText(token, LEFT + (i + 0.5) * size, TOP / 2));
  context.textAlign = "right";
  rows.forEach((token, i) => context.fillText(token, LEFT - 8, TOP + (i + 0.5) * size));
}

/**
 * Return the cell at the cursor, if the map has it.
 * @param {ReturnType<typeof mapLayout>} layout
 */
function cellAtCursor({ rows, columns }) {
  const cell = state.hoverCell;
  return cell && cell[0] < rows.length && cell[1] < columns.length ? cell : null;
}

/**
 * @param {any} axes
 * @param {number[]} weights
 * @param {ReturnType<typeof mapLayout>} layout
 */
function describeMap(axes, weights, layout) {
  const { from, to, reading } = attentionKind(axes),
    { rows, columns } = layout,
    [layer, head] = state.selectedHead,
    title = `Layer ${layer + 1}, head ${head + 1}. `,
    cell = cellAtCursor(layout);
  if (!cell) return title + reading;
  const [row, column] = cell,
    query = `${from} ${row + 1} (${rows[row]})`,
    key = `${to} ${column + 1} (${columns[column]})`,
    weight = (weights[row * columns.length + column] / 1000).toFixed(3);
  return isMasked(row, column)
    ? `${title}${query} cannot attend to ${key}: it is a later position`
    : `${title}${query} attends to ${key} with weight ${weight}`;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {any} pass
 * @param {number[]} weights
 */
function paintMap(canvas, pass, weights) {
  const layout = mapLayout(pass, canvas.clientWidth),
    { rows, columns, size } = layout,
    [context] = setUpCanvas(canvas, Math.round(TOP + size * rows.length + 2)),
    cell = cellAtCursor(layout);
  paintNames(context, layout);
  paintCells(context, weights, layout);
  if (state.selectedKind === "decoder") paintMask(context, layout);
  context.strokeStyle = cssVariable("--pg-border");
  context.strokeRect(LEFT - 0.5, TOP - 0.5, size * columns.length + 1, size * rows.length + 1);
  if (cell) {
    context.strokeStyle = cssVariable("--pg-mark");
    context.lineWidth = 2;
    context.strokeRect(LEFT + cell[1] * size, TOP + cell[0] * size, size, size);
  }
}

/** @param {number[] | null} cell */
const setCursor = (cell) => {
  state.hoverCell = cell;
};

/** @param {any} event @param {any} pass */
function onPointerMove({ offsetX, offsetY, currentTarget }, pass) {
  const { rows, columns, size } = mapLayout(pass, currentTarget.clientWidth),
    row = Math.floor((offsetY - TOP) / size),
    column = Math.floor((offsetX - LEFT) / size);
  const isInside = row >= 0 && column >= 0 && row < rows.length && column < columns.length;
  setCursor(isInside ? [row, column] : null);
}

/** @param {any} event @param {any} pass */
function onKeyDown(event, pass) {
  const move = KEY_MOVES[event.key];
  if (!move) return;
  event.preventDefault();
  const [rows, columns] = pass.axes[state.selectedKind],
    [row, column] = state.hoverCell ?? [-move[0], -move[1]];
  setCursor([
    Math.max(0, Math.min(rows.length - 1, row + move[0])),
    Math.max(0, Math.min(columns.length - 1, column + move[1])),
  ]);
}

/** The weights of the selected head as a large map. */
export function SelectedHead() {
  const { pass } = figure.value ?? {},
    { selectedKind: kind, selectedHead, hoverCell } = state,
    [layer, head] = selectedHead,
    weights = pass?.attention[kind]?.[layer]?.[head],
    canvas = useCanvas(
      (element) => weights && paintMap(element, pass, weights),
      [weights, hoverCell],
    );
  return html`<figure class="focus">
    <canvas
      ref=${canvas}
      class="focus-map"
      role="img"
      aria-label="Attention of the selected head"
      tabindex="0"
      onPointerMove=${(/** @type {any} */ event) => weights && onPointerMove(event, pass)}
      onPointerLeave=${() => setCursor(null)}
      onBlur=${() => setCursor(null)}
      onKeyDown=${(/** @type {any} */ event) => weights && onKeyDown(event, pass)}
    ></canvas>
    <${ColorScale} max=${1} />
    <figcaption>${weights && describeMap(pass.axes, weights, mapLayout(pass, 0))}</figcaption>
  </figure>`;
}
