// The attention weights of the diagram as pictures. The links in its middle: source tokens, target
// tokens, and between them a link for each weight of the selected head; beside the target, the
// predicted tokens. And the small map of each head.
import { setUpCanvas } from "../../shared/canvas.js";
import { formatToken } from "../../shared/format.js";
import { colorTable, cssVariable } from "../../shared/palette.js";

const MIN_LINK_WEIGHT = 0.02;
const TOP = 34, // height of the memory arrow and the column titles
  BOTTOM = 8;

const TITLES = 18; // height of the column titles above the rows
const MAX_ROW_HEIGHT = 40;
const LINK_GAP = 21; // from the middle of a token to its links

/** The height of a token's row: smaller for long sequences, larger where there is space. */
function rowHeightFor(longest, space) {
  const smallest = longest > 24 ? 9 : longest > 14 ? 14 : 22;
  return Math.max(smallest, Math.min(MAX_ROW_HEIGHT, Math.floor(space / longest)));
}

/**
 * Paint the middle of the diagram.
 * @param {HTMLCanvasElement & { layout?: any }} canvas `layout` receives the positions of the rows
 * @param {{
 *   keys: string[], queries: string[], weights: number[] | null, output: any, outputRow?: number,
 *   titles: string[],
 *   color: string, highlight: number | null, memoryColor: string, hasMemory: boolean,
 *   minHeight: number,
 * }} view
 */
export function paintLinks(canvas, view) {
  const { keys, queries, weights, output, outputRow = 0 } = view,
    longest = Math.max(keys.length, queries.length),
    rowHeight = rowHeightFor(longest, view.minHeight - TOP - BOTTOM - TITLES),
    height = Math.max(TOP + longest * rowHeight + BOTTOM, view.minHeight);
  const [c, width] = setUpCanvas(canvas, height);
  if (!width) return;
  const middle = TOP + (height - TOP - BOTTOM) / 2,
    y = (names, i) => middle + (i + 0.5 - names.length / 2) * rowHeight,
    barWidth = output ? Math.min(58, width * 0.16) : 0,
    keysX = 26,
    queriesX = width - (output ? barWidth + 62 : 26);
  c.textBaseline = "middle";
  c.lineCap = "round";
  if (view.hasMemory) paintMemoryArrow(c, width, view.memoryColor);
  if (weights) {
    for (let r = 0; r < queries.length; r++)
      for (let k = 0; k < keys.length; k++) {
        const weight = weights[r * keys.length + k] / 1000;
        if (weight < MIN_LINK_WEIGHT) continue;
        const isQuiet = view.highlight !== null && view.highlight !== r;
        c.strokeStyle = view.color;
        c.globalAlpha = (isQuiet ? 0.15 : 1) * (0.12 + 0.88 * weight);
        c.lineWidth = 0.5 + weight * Math.min(9, rowHeight * 0.4);
        paintLink(c, keysX + LINK_GAP, y(keys, k), queriesX - LINK_GAP, y(queries, r));
      }
    c.globalAlpha = 1;
  }
  paintTokens(c, keys, keysX, (i) => y(keys, i), rowHeight);
  paintTokens(c, queries, queriesX, (i) => y(queries, i), rowHeight);
  if (output)
    paintOutput(c, output, queriesX + 26, barWidth, (i) => y(queries, outputRow + i), rowHeight);
  const titleY = middle - (longest / 2) * rowHeight - 9;
  paintTitle(c, view.titles[0], keysX - 18, titleY, "left");
  paintTitle(c, view.titles[1], queriesX + 16, titleY, "right");
  if (output) paintTitle(c, view.titles[2] ?? "prediction", queriesX + 26, titleY, "left");
  canvas.layout = { keysX, queriesX, rowHeight, y: (i) => y(queries, i), count: queries.length };
}

function paintLink(c, x0, y0, x1, y1) {
  const middle = (x0 + x1) / 2;
  c.beginPath();
  c.moveTo(x0, y0);
  c.bezierCurveTo(middle, y0, middle, y1, x1, y1);
  c.stroke();
}

// The encoder's output goes to every cross-attention of the decoder.
function paintMemoryArrow(c, width, color) {
  const y = 9,
    label = "memory: keys and values";
  c.font = "13px " + cssVariable("--pg-font");
  const half = c.measureText(label).width / 2 + 8;
  c.strokeStyle = c.fillStyle = color;
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

function paintTitle(c, text, x, y, align) {
  c.font = "14px " + cssVariable("--pg-font");
  c.textAlign = align;
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.fillText(text, x, y);
}

function paintTokens(c, names, x, y, rowHeight) {
  c.font = (rowHeight < 12 ? 8 : 14) + "px " + cssVariable("--pg-mono");
  c.textAlign = "center";
  c.fillStyle = cssVariable("--pg-text");
  names.forEach((name, i) => c.fillText(formatToken(name), x, y(i)));
}

// Each predicted token with a bar of its probability; wrong tokens are red and underlined.
function paintOutput(c, { target, predicted, probability }, x, barWidth, y, rowHeight) {
  c.font = (rowHeight < 12 ? 8 : 14) + "px " + cssVariable("--pg-mono");
  c.textAlign = "left";
  target.forEach((token, i) => {
    const isRight = token === predicted[i],
      text = formatToken(predicted[i]),
      textWidth = c.measureText(text).width;
    c.fillStyle = cssVariable("--pg-grid");
    c.fillRect(x + 32, y(i) - 3, barWidth, 6);
    c.fillStyle = cssVariable(isRight ? "--pg-good" : "--pg-bad");
    c.fillRect(x + 32, y(i) - 3, (barWidth * probability[i]) / 1000, 6);
    c.fillText(text, x, y(i));
    if (!isRight) c.fillRect(x, y(i) + Math.min(8, rowHeight * 0.36), textWidth, 1.5);
  });
}

const parseColor = (color) => {
  const hex = /^#(..)(..)(..)$/.exec(color);
  return hex ? hex.slice(1).map((each) => parseInt(each, 16)) : [185, 191, 201];
};

/**
 * Paint the weights of a head, one pixel for each, with the darkest color for the largest. The
 * browser scales the picture. The canvas element stays the same.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} weights row by row
 * @param {number} rows
 * @param {number} columns
 * @param {boolean} isCausal whether later positions are masked
 */
export function paintHeadMap(canvas, weights, rows, columns, isCausal) {
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    image = c.createImageData(columns, rows),
    table = colorTable(),
    scale = 1000 / Math.max(1e-9, ...Array.from(weights)),
    masked = isCausal ? parseColor(cssVariable("--pg-grid")) : null;
  for (let i = 0; i < weights.length; i++) {
    const isMasked = masked && i % columns > Math.floor(i / columns),
      [red, green, blue] = isMasked ? masked : table[Math.round(scale * weights[i])];
    image.data.set([red, green, blue, 255], 4 * i);
  }
  c.putImageData(image, 0, 0);
}
