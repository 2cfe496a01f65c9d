// The attention weights of the diagram as pictures: the links of a head, from its keys to its
// queries and into its block, with the output beside the queries; and the small map of each head.
import { paintPixels, setUpCanvas } from "../canvas.js";
import { formatToken } from "../format.js";
import { colorTable, cssVariable, parseColor, resolveColor } from "../palette.js";

/** @typedef {CanvasRenderingContext2D} Context */
/**
 * The links of a head. Weights are thousandths, row by row; a row is a query.
 * @typedef {{ weights: ArrayLike<number>, color: string | number }} HeadLinks What the links show.
 * @typedef {{ keys: string[], queries: string[],
 *   output: { target: string[], predicted: string[], probability: number[] } | null,
 *   outputRow: number, titles: string[], hasMemory: boolean }} LinksData How they show it:
 *   `highlight` is a row, `owner` the height and the side of the block of the head.
 * @typedef {LinksData & { heads: HeadLinks[], highlight: number | null, minHeight: number,
 *   owner: { y: number, isLeft: boolean } | null, tokenWidth: number }} LinksView
 */

const MIN_LINK_WEIGHT = 0.02;
const TOP = 34, // height of the memory arrow and the column titles
  BOTTOM = 8;
const TITLES = 18; // height of the column titles above the rows
const MAX_ROW_HEIGHT = 40;
const FONT_SIZE = 14,
  SMALL_FONT_SIZE = 12; // for words
const LINK_MARGIN = 4; // from the end of a link to its token
const HEAD_DISTANCE = 2.4; // between the links of two heads
const OUTPUT_WIDTH = 42,
  FAN_WIDTH = 26; // from the tokens to the block that owns the links

/** Smaller for long sequences. @param {number} longest @param {number} space */
function rowHeightFor(longest, space) {
  const smallest = longest > 24 ? 9 : longest > 14 ? 14 : 22;
  return Math.max(smallest, Math.min(MAX_ROW_HEIGHT, Math.floor(space / longest)));
}

/** @param {Context} c @param {string} token @param {number} width in pixels */
function shorten(c, token, width) {
  const characters = [...formatToken(token)],
    most = Math.floor(width / c.measureText("0").width);
  return characters.length > most
    ? characters.slice(0, most - 1).join("") + "…"
    : characters.join("");
}

/**
 * @param {HTMLCanvasElement & { layout?: any }} canvas `layout` receives the positions of the rows
 * @param {LinksView} view
 */
export function paintLinks(canvas, view) {
  const { keys, queries, heads, output, outputRow, owner, titles, tokenWidth } = view,
    longest = Math.max(keys.length, queries.length),
    rowHeight = rowHeightFor(longest, view.minHeight - TOP - BOTTOM - TITLES),
    height = Math.max(TOP + longest * rowHeight + BOTTOM, view.minHeight);
  const [c, width] = setUpCanvas(canvas, height);
  if (!width) return;
  const middle = TOP + (height - TOP - BOTTOM) / 2,
    y = (/** @type {string[]} */ names, /** @type {number} */ i) =>
      middle + (i + 0.5 - names.length / 2) * rowHeight,
    end = width - (owner ? FAN_WIDTH : 0),
    // The queries are beside the block of the head.
    x = (/** @type {number} */ at) => (owner?.isLeft ? width - at : at),
    outputX = end - OUTPUT_WIDTH,
    queriesX = (output ? outputX : end) - tokenWidth / 2,
    titleY = middle - (longest / 2) * rowHeight - 9;
  c.textBaseline = "middle";
  c.lineCap = "round";
  if (view.hasMemory) paintMemoryArrow(c, width);
  const distance = Math.min(HEAD_DISTANCE, (0.6 * rowHeight) / heads.length);
  heads.forEach((head, h) => {
    const shift = (h - (heads.length - 1) / 2) * distance;
    paintCurves(c, view, head, {
      keysX: x(tokenWidth + LINK_MARGIN),
      queriesX: x(queriesX - tokenWidth / 2 - LINK_MARGIN),
      fanX: x(end),
      ownerX: x(width),
      keyY: (i) => y(keys, i) + shift,
      queryY: (i) => y(queries, i) + shift,
      rowHeight,
    });
  });
  setTokenFont(c, [...keys, ...queries, ...(output?.predicted ?? [])], rowHeight, tokenWidth);
  paintTokens(c, keys, tokenWidth, x(tokenWidth / 2), (i) => y(keys, i));
  paintTokens(c, queries, tokenWidth, x(queriesX), (i) => y(queries, i));
  if (output) paintOutput(c, output, outputX, (i) => y(queries, outputRow + i), rowHeight);
  const [left, right] = owner?.isLeft ? ["right", "left"] : ["left", "right"];
  paintTitle(c, titles[0], x(2), titleY, left);
  paintTitle(c, titles[1], x(queriesX + 12), titleY, right);
  if (output) paintTitle(c, titles[2], outputX, titleY, "left");
  canvas.layout = {
    rowHeight,
    y: (/** @type {number} */ i) => y(queries, i),
    count: queries.length,
  };
}

/**
 * The links of a head from keys to queries, and on into its block.
 * @param {Context} c
 * @param {Pick<LinksView, "keys" | "queries" | "heads" | "highlight" | "owner">} view
 * @param {HeadLinks} head
 * @param {{ keysX: number, queriesX: number, fanX: number, ownerX: number,
 *   keyY: (i: number) => number, queryY: (i: number) => number, rowHeight: number }} layout
 */
export function paintCurves(
  c,
  { keys, queries, heads, highlight, owner },
  { weights, color },
  layout,
) {
  const { keysX, queriesX, keyY, queryY, rowHeight } = layout,
    opacity = heads.length > 1 ? 0.6 : 1; // links of several heads cover each other
  c.strokeStyle = resolveColor(color);
  for (let r = 0; r < queries.length; r++) {
    const share = highlight === null || highlight === r ? opacity : 0.15 * opacity;
    for (let k = 0; k < keys.length; k++) {
      const weight = weights[r * keys.length + k] / 1000;
      if (weight < MIN_LINK_WEIGHT) continue;
      c.globalAlpha = share * (0.12 + 0.88 * weight);
      c.lineWidth = 0.5 + weight * Math.min(9, rowHeight * 0.4);
      paintCurve(c, keysX, keyY(k), queriesX, queryY(r));
    }
    if (!owner) continue;
    c.globalAlpha = 0.6 * share;
    c.lineWidth = 1.5;
    paintCurve(c, layout.fanX, queryY(r), layout.ownerX, owner.y);
  }
  c.globalAlpha = 1;
}

/**
 * @param {Context} c @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1
 */
function paintCurve(c, x0, y0, x1, y1) {
  const middle = (x0 + x1) / 2;
  c.beginPath();
  c.moveTo(x0, y0);
  c.bezierCurveTo(middle, y0, middle, y1, x1, y1);
  c.stroke();
}

/** Every cross-attention reads the encoder's output. @param {Context} c @param {number} width */
function paintMemoryArrow(c, width) {
  const y = 9,
    label = "memory: keys and values";
  c.font = "13px " + cssVariable("--pg-font");
  const half = c.measureText(label).width / 2 + 8;
  c.strokeStyle = c.fillStyle = cssVariable("--pg-cross");
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(0, y);
  c.lineTo(width / 2 - half, y);
  c.moveTo(width / 2 + half, y);
  c.lineTo(width - 6, y);
  c.stroke();
  c.beginPath();
  c.moveTo(width, y);
  c.lineTo(width - 8, y - 4);
  c.lineTo(width - 8, y + 4);
  c.fill();
  c.textAlign = "center";
  c.fillText(label, width / 2, y);
}

/**
 * @param {Context} c @param {string} text @param {number} x @param {number} y @param {string} align
 */
function paintTitle(c, text, x, y, align) {
  c.font = "13px " + cssVariable("--pg-font");
  c.textAlign = /** @type {CanvasTextAlign} */ (align);
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.fillText(text, x, y);
}

/** @param {Context} c @param {string[]} names @param {number} rowHeight @param {number} width */
function setTokenFont(c, names, rowHeight, width) {
  const setSize = (/** @type {number} */ size) => {
    c.font = `${size}px ${cssVariable("--pg-mono")}`;
  };
  setSize(rowHeight < 12 ? 8 : FONT_SIZE);
  if (rowHeight >= 12 && names.some((name) => shorten(c, name, width) !== formatToken(name)))
    setSize(SMALL_FONT_SIZE);
}

/**
 * @param {Context} c @param {string[]} names @param {number} width @param {number} x
 * @param {(i: number) => number} y
 */
function paintTokens(c, names, width, x, y) {
  c.textAlign = "center";
  c.fillStyle = cssVariable("--pg-text");
  names.forEach((name, i) => c.fillText(shorten(c, name, width), x, y(i)));
}

/**
 * Each token of the output above a bar of its probability; wrong ones are red and underlined.
 * @param {Context} c @param {NonNullable<LinksData["output"]>} output
 * @param {number} x @param {(i: number) => number} y @param {number} rowHeight
 */
function paintOutput(c, { target, predicted, probability }, x, y, rowHeight) {
  const barWidth = OUTPUT_WIDTH - 8,
    barHeight = rowHeight < 20 ? 1.5 : 3,
    below = Math.min(8, 0.32 * rowHeight);
  c.textAlign = "left";
  target.forEach((token, i) => {
    const isRight = token === predicted[i],
      text = shorten(c, predicted[i], OUTPUT_WIDTH),
      line = y(i) + below;
    c.fillStyle = cssVariable("--pg-grid");
    c.fillRect(x, line + 3, barWidth, barHeight);
    c.fillStyle = cssVariable(isRight ? "--pg-good" : "--pg-bad");
    c.fillRect(x, line + 3, (barWidth * probability[i]) / 1000, barHeight);
    c.fillText(text, x, y(i));
    if (!isRight) c.fillRect(x, line, c.measureText(text).width, 1.5);
  });
}

/**
 * Paint the weights of a head, with the darkest color for the largest.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} weights row by row @param {number} rows @param {number} columns
 * @param {boolean} isCausal whether later positions are masked
 * @param {number | null} highlight the row that stays as it is, while the others fade
 */
export function paintHeadMap(canvas, weights, rows, columns, isCausal, highlight) {
  const table = colorTable(),
    scale = 1000 / Math.max(1e-9, ...Array.from(weights)),
    masked = isCausal ? parseColor(cssVariable("--pg-grid")) : null;
  paintPixels(canvas, rows, columns, (row, column) => [
    .../** @type {number[]} */ (
      masked && column > row ? masked : table[Math.round(scale * weights[row * columns + column])]
    ),
    highlight === null || highlight === row ? 255 : 70,
  ]);
}
