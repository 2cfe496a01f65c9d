// The picture of a model for others: an example with its attention, the curve of the exact match,
// one sentence, and an address. It is painted from data, for any step.
import { paintCurves } from "../shared/diagram/paint.js";
import { buildLinks } from "../shared/diagram/structure.js";
import { formatCount, formatPercent, formatToken } from "../shared/format.js";
import { cssVariable } from "../shared/palette.js";

/** @typedef {import("./curves.js").Evaluation} Evaluation */
/**
 * The content of the card: `result` is the sentence of the server, or without parts of the model
 * that of this page.
 * @typedef {{
 *   name: string,
 *   result: string,
 *   hasPartsOff: boolean,
 *   address: string,
 *   evaluations: Evaluation[],
 *   lastStep: number,
 *   head: string,
 *   selected: { kind: string, layer: number, head: number },
 * }} Card
 */

export const WIDTH = 1200,
  HEIGHT = 630; // as sites show pictures of links
const LEFT = 56,
  RIGHT = WIDTH - LEFT;
const EXAMPLE = { top: 206, height: 350, right: 540, tokenWidth: 84 };
const CURVE = { left: 650, top: 200, height: 310 };
const MAX_ROW_HEIGHT = 56;

/**
 * Paint the card with the forward pass of a step.
 * @param {HTMLCanvasElement} canvas @param {Card} card @param {any} pass
 */
export function paintCard(canvas, card, pass) {
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    evaluations = card.evaluations.filter(([step]) => step <= pass.step),
    latest = evaluations.at(-1),
    hasResult = pass.step >= card.lastStep || (card.hasPartsOff && pass.isFromEngine);
  c.fillStyle = cssVariable("--pg-background");
  c.fillRect(0, 0, WIDTH, HEIGHT);
  c.fillStyle = cssVariable("--pg-accent");
  c.fillRect(0, 0, WIDTH, 10);
  c.textBaseline = "middle";
  write(c, card.name, LEFT, 72, { size: 46, weight: "bold" });
  const score =
    latest &&
    ` · ${formatPercent(latest[1])} of ${formatCount(latest[3], "unseen sequence")} right`;
  const sentence =
    hasResult && card.result ? card.result : formatCount(pass.step, "step") + (score ?? "");
  write(c, sentence, LEFT, 130, { size: 28, color: "--pg-quiet-text" });
  if (pass.attention[card.selected.kind])
    write(c, card.head, LEFT, 186, { size: 22, color: "--pg-quiet-text" });
  paintExample(c, card.selected, pass);
  paintCurve(c, evaluations, Math.max(1, card.lastStep));
  write(c, card.address, LEFT, 596, { size: 22, color: "--pg-quiet-text" });
  write(c, "Transformer Playground", RIGHT, 596, {
    size: 22,
    color: "--pg-accent",
    align: "right",
  });
}

/**
 * Write a line, narrower if the card has no space for it.
 * @param {CanvasRenderingContext2D} c @param {string} text @param {number} x @param {number} y
 * @param {{ size: number, weight?: string, color?: string, align?: string, font?: string }} style
 */
function write(
  c,
  text,
  x,
  y,
  { size, weight = "", color = "--pg-text", align = "left", font = "--pg-font" },
) {
  c.font = `${weight} ${size}px ${cssVariable(font)}`;
  c.fillStyle = cssVariable(color);
  c.textAlign = /** @type {CanvasTextAlign} */ (align);
  c.fillText(text, x, y, RIGHT - LEFT);
}

/**
 * The tokens of the example, and the links of the selected head from the input to the output.
 * @param {CanvasRenderingContext2D} c @param {Card["selected"]} selected @param {any} pass
 */
function paintExample(c, { kind, layer, head }, pass) {
  const links = buildLinks(pass, kind),
    { keys, queries, output, outputRow } = links,
    weights = pass.attention[kind]?.[layer]?.[head],
    { top, height, right, tokenWidth } = EXAMPLE,
    rowHeight = Math.min(MAX_ROW_HEIGHT, height / Math.max(keys.length, queries.length)),
    y = (/** @type {string[]} */ names, /** @type {number} */ i) =>
      top + height / 2 + (i + 0.5 - names.length / 2) * rowHeight,
    mono = { size: Math.min(30, 0.68 * rowHeight), font: "--pg-mono" };
  if (weights)
    paintCurves(
      c,
      { ...links, heads: [], highlight: null, owner: null },
      { weights, color: `--pg-${kind}` },
      {
        keysX: LEFT + tokenWidth,
        queriesX: right - tokenWidth,
        fanX: 0,
        ownerX: 0,
        keyY: (i) => y(keys, i),
        queryY: (i) => y(queries, i),
        rowHeight,
      },
    );
  keys.forEach((token, i) => write(c, formatToken(token), LEFT, y(keys, i), mono));
  queries.forEach((query, i) => {
    const at = i - outputRow,
      token = output?.predicted[at] ?? query,
      isRight = token === output?.target[at],
      color = !output || at < 0 ? "--pg-text" : isRight ? "--pg-good" : "--pg-bad";
    write(c, formatToken(token), right, y(queries, i), { ...mono, color, align: "right" });
  });
}

/**
 * The exact match up to a step, on the axis of all steps.
 * @param {CanvasRenderingContext2D} c @param {Evaluation[]} evaluations @param {number} lastStep
 */
function paintCurve(c, evaluations, lastStep) {
  const { left, top, height } = CURVE,
    width = RIGHT - left,
    x = (/** @type {number} */ step) => left + (step / lastStep) * width,
    y = (/** @type {number} */ score) => top + (1 - score) * height,
    quiet = { size: 20, color: "--pg-quiet-text" };
  write(c, "Unseen sequences right", left, top - 28, quiet);
  c.lineCap = c.lineJoin = "round";
  for (const share of [0, 0.5, 1]) {
    c.fillStyle = cssVariable("--pg-grid");
    c.fillRect(left, y(share), width, 2);
    write(c, `${100 * share} %`, left - 12, y(share), { ...quiet, align: "right" });
  }
  write(c, "0", left, top + height + 24, quiet);
  write(c, formatCount(lastStep, "step"), RIGHT, top + height + 24, { ...quiet, align: "right" });
  c.strokeStyle = c.fillStyle = cssVariable("--pg-accent");
  c.lineWidth = 6;
  c.beginPath();
  for (const [step, score] of evaluations) c.lineTo(x(step), y(score));
  c.stroke();
  const latest = evaluations.at(-1);
  if (!latest) return;
  c.beginPath();
  c.arc(x(latest[0]), y(latest[1]), 9, 0, 2 * Math.PI);
  c.fill();
}
