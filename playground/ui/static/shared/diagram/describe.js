// The diagram in sentences.
import { html } from "../../vendor/preact.js";
import { formatCount, formatWholePercent } from "../format.js";
import { describeHead, firstPredictedRow, KIND_TITLES } from "./structure.js";
/** @import { Selection } from "./structure.js" */

const MIN_LISTED_WEIGHT = 0.005;
const MAX_LISTED = 3;

/** What the blocks of a kind do. @type {Record<string, string>} */
export const BLOCK_TEXTS = {
  encoder: "Each token reads from all tokens of the input.",
  decoder: "Each token reads from itself and from the tokens before it. Later ones are hidden.",
  cross:
    "Here the decoder reads the input: the tokens that it needs to write its next one. " +
    "The queries come from the decoder, the keys and values from the encoder's output.",
  "feed-forward":
    "Two linear layers with an activation between them change the vector of each token, " +
    "without the other tokens.",
  recurrent: "The cell updates its state from one token to the next.",
};

/** In words: "1 (position 2) 0.975". @param {string[]} names @param {number[]} weights */
export const describeWeights = (names, weights) =>
  weights
    .map((weight, i) => ({ weight, text: `${names[i]} (position ${i + 1}) ${weight.toFixed(3)}` }))
    .filter(({ weight }) => weight >= MIN_LISTED_WEIGHT)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, MAX_LISTED)
    .map(({ text }) => text)
    .join(", ");

/** Return the role of a head of a pass. @param {any} pass @param {Selection} head */
export function roleOf(pass, { kind, layer, head }) {
  const [rows, columns] = pass.axes[kind],
    weights = pass.attention[kind][layer][head];
  return findRole(weights, rows.length, columns.length, kind === "decoder");
}

/** @param {NonNullable<ReturnType<typeof findRole>>} role */
export const describeRole = ({ share, text }) =>
  `${formatWholePercent(share)} of its attention is on ${text}`;

/** Such as "Target 1 (5)". @param {string} kind @param {string[]} queries @param {number} row */
export const nameQuery = (kind, queries, row) =>
  `${kind === "cross" ? "Target" : "Token"} ${row + 1} (${queries[row]})`;

/**
 * @param {string} kind @param {string[][]} axes @param {number} query @param {number} key
 * @param {number} weight
 */
export const describeWeight = (kind, [queries, keys], query, key, weight) =>
  `${nameQuery(kind, queries, query)} attends to ${keys[key]} (position ${key + 1}) with weight ` +
  `${weight.toFixed(3)}.`;

/** @param {any} pass @param {Selection} selected @param {number} row */
function describeRow(pass, { kind, layer, head }, row) {
  const [queries, keys] = pass.axes[kind],
    { predicted, probability } = pass.probe ?? {},
    outputRow = firstPredictedRow(kind, queries.length, pass),
    i = outputRow === null ? -1 : row - outputRow,
    weights = pass.attention[kind][layer][head],
    ofRow = keys.map(
      (/** @type {string} */ _, /** @type {number} */ k) => weights[row * keys.length + k] / 1000,
    );
  return (
    `${nameQuery(kind, queries, row)} attends to ${describeWeights(keys, ofRow)}.` +
    (predicted?.[i] === undefined
      ? ""
      : ` Prediction: ${predicted[i]} with probability ${(probability[i] / 1000).toFixed(3)}.`)
  );
}

/** @param {any} pass @param {Selection} selected @param {boolean} isOff */
function describeSelected(pass, selected, isOff) {
  const { kind, layer, head } = selected;
  if (!pass.attention[kind]?.[layer]?.[head])
    return "This model has no attention; it passes the input on as one vector.";
  const name = describeHead(kind, layer, head, !pass.axes.cross);
  if (isOff) return `${name} is off. It still reads, but what it reads is not used.`;
  const role = roleOf(pass, selected);
  return `${name}. ${role ? describeRole(role) : "Its attention has no clear pattern"}.`;
}

/** Return what the diagram shows, for a screen reader. @param {any} pass */
export function describePass({ attention, probe }) {
  const counts = Object.entries(attention).map(
      ([kind, layers]) =>
        `${formatCount(layers.length * layers[0].length, "head")} of ` +
        KIND_TITLES[kind].toLowerCase(),
    ),
    isRight = (/** @type {string} */ token, /** @type {number} */ i) =>
      token === probe.predicted[i];
  return (
    `Diagram of the model: ${counts.join(", ") || "no attention"}` +
    (probe
      ? `. ${probe.target.filter(isRight).length} of ${probe.target.length} predicted tokens are ` +
        "right"
      : "")
  );
}

/**
 * The row that the user points at, or the selected head. The values of a row are spoken, but not
 * the numbers that change during training.
 * @param {{ pass: any, selected: Selection, row: number | null, isOff: boolean }} props
 */
export function DiagramNote({ pass, selected, row, isOff }) {
  const queries = pass?.axes[selected.kind]?.[0] ?? [],
    isRow = row !== null && row < queries.length;
  return html`<p class="diagram-note pg-hint" aria-live=${isRow ? "polite" : "off"}>
    ${pass && (isRow ? describeRow(pass, selected, row) : describeSelected(pass, selected, isOff))}
  </p>`;
}

// The role of a head on one input, as inspection/head_patterns.py measures it on many.

const MIN_CLARITY = 0.5; // of a role: 0 for uniform attention, 1 for all of it on the pattern
const MAX_CHANCE = 0.5; // of uniform attention; from here on, a pattern is no information

/**
 * The key that a query reads; `end` is the place of EOS.
 * @type {Record<string, [(query: number, end: number) => number, string]>}
 */
const PATTERNS = {
  self: [(query) => query, "its own position"],
  mirror: [(query, end) => end - 1 - query, "the mirrored position"],
  previous: [(query) => query - 1, "the previous position"],
  next: [(query) => query + 1, "the next position"],
  first: [() => 0, "the first token"],
  last: [(_, end) => end, "EOS, the end of the input"],
};

/**
 * Return the role of a head, and which share of its weights it describes; null without a clear one.
 * @param {ArrayLike<number>} weights thousandths, row by row @param {number} rows
 * @param {number} columns @param {boolean} isCausal
 */
export function findRole(weights, rows, columns, isCausal) {
  let best = /** @type {{ name: string, text: string, share: number } | null} */ (null),
    bestClarity = MIN_CLARITY;
  for (const [name, [keyOf, text]] of Object.entries(PATTERNS)) {
    let share = 0,
      chance = 0,
      count = 0;
    for (let query = isCausal ? 1 : 0; query < rows; query++) {
      const nKeys = isCausal ? query + 1 : columns,
        key = keyOf(query, isCausal ? columns : columns - 1);
      if (key < 0 || key >= nKeys) continue;
      share += weights[query * columns + key] / 1000;
      chance += 1 / nKeys;
      count += 1;
    }
    const clarity = (share - chance) / (count - chance);
    if (chance / count < MAX_CHANCE && clarity >= bestClarity) {
      bestClarity = clarity;
      best = { name, text, share: share / count };
    }
  }
  return best;
}
