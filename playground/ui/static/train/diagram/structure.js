// The blocks of a model, from what the server sends: which stacks it has, with which layers,
// sublayers and heads. Pure functions, without elements.

export const KIND_TITLES = {
  encoder: "Self-attention",
  decoder: "Masked self-attention",
  cross: "Cross-attention",
  "feed-forward": "Feed-forward",
  recurrent: "Recurrent cell",
};
const SUBLAYERS = {
  encoder: "self_attn",
  decoder: "self_attn",
  cross: "cross_attn",
  "feed-forward": "feed_forward",
};

/**
 * @typedef {{kind: string, layer: number, heads: number, title: string, component: string}} Block
 * @typedef {{side: "encoder" | "decoder", title: string, layers: Block[][]}} Stack
 */

/**
 * Return the stacks of a model, each with its layers from the bottom to the top.
 * @param {{architecture: string, n_layers: number}} info
 * @param {Record<string, number[][][]>} attention weights by kind, layer and head
 * @returns {Stack[]}
 */
export function buildStacks(info, attention) {
  if (!attention.encoder && !attention.decoder) return buildRecurrentStacks(info, attention);
  const isSingle = !attention.cross,
    stacks = /** @type {Stack[]} */ ([]);
  if (attention.encoder)
    stacks.push(
      buildStack("encoder", isSingle ? info.architecture : "Encoder", attention, isSingle),
    );
  if (attention.decoder)
    stacks.push(
      buildStack("decoder", isSingle ? info.architecture : "Decoder", attention, isSingle),
    );
  return stacks;
}

/** @returns {Stack} */
function buildStack(side, title, attention, isSingle) {
  const kinds = side === "decoder" && attention.cross ? ["decoder", "cross"] : [side],
    prefix = isSingle ? "layers" : side + "_layers";
  return {
    side,
    title,
    layers: attention[side].map((_, layer) =>
      [...kinds, "feed-forward"].map((kind) => ({
        kind,
        layer,
        heads: attention[kind]?.[layer]?.length || 0,
        title: KIND_TITLES[kind],
        component: `${prefix}.${layer}.${SUBLAYERS[kind]}`,
      })),
    ),
  };
}

/**
 * Return what a block consists of and what can be switched off: its heads, or the block itself.
 * @param {Block} block
 * @param {string} side of its stack
 * @returns {import("../../engine/types.js").Component[]}
 */
export const partsOf = ({ kind, layer, heads }, side) =>
  heads
    ? Array.from({ length: heads }, (_, head) => ({ kind, layer, head }))
    : [{ kind: `${side} ${kind}`, layer, head: null }];

/**
 * A recurrent model attends, if at all, in one layer with one head, after its last cell.
 * @returns {Stack[]}
 */
function buildRecurrentStacks(info, attention) {
  const cells = (side) =>
    Array.from({ length: info.n_layers }, (_, layer) => [
      { kind: "recurrent", layer, heads: 0, title: KIND_TITLES.recurrent, component: side },
    ]);
  const decoder = cells("decoder");
  if (attention.cross)
    decoder.push([
      { kind: "cross", layer: 0, heads: 1, title: KIND_TITLES.cross, component: "cross" },
    ]);
  return [
    { side: "encoder", title: "Encoder", layers: cells("encoder") },
    { side: "decoder", title: "Decoder", layers: decoder },
  ];
}

/**
 * Return the name of a head or block: "Cross-attention, layer 2, head 1".
 * @param {string} kind
 * @param {number} layer counts from 0
 * @param {number | null} head counts from 0; null for the block
 * @param {boolean} isSingle whether the model has one stack
 */
export function describeHead(kind, layer, head, isSingle) {
  const side = isSingle || kind === "cross" ? "" : kind === "encoder" ? "Encoder " : "Decoder ",
    title = kind === "cross" ? KIND_TITLES.cross : "self-attention";
  const name = side + title;
  return (
    name[0].toUpperCase() +
    name.slice(1) +
    ", layer " +
    (layer + 1) +
    (head === null ? "" : ", head " + (head + 1))
  );
}

/**
 * Return the row of the query that predicts the first target token; null if these queries predict
 * nothing. In a decoder with one stack, the queries of the source come first.
 * @param {string} kind
 * @param {number} queryCount
 * @param {any} pass
 */
export function firstPredictedRow(kind, queryCount, { axes, probe }) {
  if (!probe || (kind === "encoder" && axes.cross)) return null;
  return kind === "encoder" ? 0 : Math.max(0, queryCount - probe.target.length);
}

/**
 * Return statistics of the weights of a head: how concentrated they are.
 * @param {number[]} weights thousandths, row by row
 * @param {number} rows
 * @param {number} columns
 * @returns {{entropy: number, maxWeight: number}} mean entropy of a row in bits, and the mean of
 *   the largest weight of each row
 */
export function summarizeHead(weights, rows, columns) {
  let entropy = 0,
    maxWeight = 0;
  for (let row = 0; row < rows; row++) {
    let largest = 0;
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column] / 1000;
      if (weight > 0) entropy -= weight * Math.log2(weight);
      largest = Math.max(largest, weight);
    }
    maxWeight += largest;
  }
  return { entropy: entropy / rows, maxWeight: maxWeight / rows };
}

const MIN_LISTED_WEIGHT = 5; // thousandths
const MAX_LISTED_KEYS = 12;

/**
 * Return the weights of one query in words, the largest first: "1 (position 2) 0.975".
 * @param {string[]} keys
 * @param {number[]} weights thousandths, row by row
 * @param {number} row
 */
export function describeWeights(keys, weights, row) {
  const ranked = keys
    .map((token, k) => ({ token, position: k + 1, weight: weights[row * keys.length + k] }))
    .filter(({ weight }) => weight >= MIN_LISTED_WEIGHT)
    .sort((a, b) => b.weight - a.weight);
  return ranked
    .slice(0, MAX_LISTED_KEYS)
    .map(
      ({ token, position, weight }) =>
        `${token} (position ${position}) ${formatThousandths(weight)}`,
    )
    .join(", ");
}

/** @param {number} thousandths */
export const formatThousandths = (thousandths) => (thousandths / 1000).toFixed(3);
