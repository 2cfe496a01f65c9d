// The blocks of a model, from what the server sends: which stacks it has, with which layers,
// sublayers and heads. Pure functions, without elements.

export const KIND_TITLES = /** @type {Record<string, string>} */ ({
  encoder: "Self-attention",
  decoder: "Masked self-attention",
  cross: "Cross-attention",
  "feed-forward": "Feed-forward",
  recurrent: "Recurrent cell",
});
const TITLES = { encoder: "Encoder: reads the input", decoder: "Decoder: writes the output" };
const SUBLAYERS = /** @type {Record<string, string>} */ ({
  encoder: "self_attn",
  decoder: "self_attn",
  cross: "cross_attn",
  "feed-forward": "feed_forward",
});

/**
 * @typedef {{kind: string, layer: number, heads: number, title: string, component: string}} Block
 * @typedef {{side: "encoder" | "decoder", title: string, layers: Block[][]}} Stack
 * @typedef {{kind: string, layer: number, head: number}} Selection
 * @typedef {Record<string, ArrayLike<number>[][]>} Attention weights by kind, layer and head
 */

/**
 * Return the stacks of a model, each with its layers from the bottom to the top.
 * @param {{architecture: string, n_layers: number}} info @param {Attention} attention
 * @returns {Stack[]}
 */
export function buildStacks(info, attention) {
  if (!attention.encoder && !attention.decoder) return buildRecurrentStacks(info, attention);
  const isSingle = !attention.cross,
    sides = /** @type {const} */ (["encoder", "decoder"]).filter((side) => attention[side]);
  return sides.map((side) =>
    buildStack(side, isSingle ? info.architecture : TITLES[side], attention, isSingle),
  );
}

/**
 * @param {"encoder" | "decoder"} side @param {string} title @param {Attention} attention
 * @param {boolean} isSingle @returns {Stack}
 */
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
 * @param {Block} block @param {string} side of its stack
 * @returns {import("../../engine/types.js").Component[]}
 */
export const partsOf = ({ kind, layer, heads }, side) =>
  heads
    ? Array.from({ length: heads }, (_, head) => ({ kind, layer, head }))
    : [{ kind: `${side} ${kind}`, layer, head: null }];

/** Whether a head is one of a block. @param {Block} block @param {Selection} head */
export const hasHead = ({ kind, layer, heads }, head) =>
  heads > 0 && head.kind === kind && head.layer === layer;

/**
 * A recurrent model attends, if at all, in one layer with one head, after its last cell.
 * @param {{n_layers: number}} info @param {Attention} attention @returns {Stack[]}
 */
function buildRecurrentStacks(info, attention) {
  const cells = (/** @type {string} */ side) =>
    Array.from({ length: info.n_layers }, (_, layer) => [
      { kind: "recurrent", layer, heads: 0, title: KIND_TITLES.recurrent, component: side },
    ]);
  const decoder = cells("decoder");
  if (attention.cross)
    decoder.push([
      { kind: "cross", layer: 0, heads: 1, title: KIND_TITLES.cross, component: "cross" },
    ]);
  return [
    { side: "encoder", title: TITLES.encoder, layers: cells("encoder") },
    { side: "decoder", title: TITLES.decoder, layers: decoder },
  ];
}

/**
 * Return the name of a head or block: "Cross-attention, layer 2, head 1".
 * @param {string} kind @param {number} layer counts from 0
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
 * @param {string} kind @param {number} queryCount @param {any} pass
 */
export function firstPredictedRow(kind, queryCount, { axes, probe }) {
  if (!probe || (kind === "encoder" && axes.cross)) return null;
  return kind === "encoder" ? 0 : Math.max(0, queryCount - probe.target.length);
}

/** @param {any} pass @param {string} kind @returns {import("./paint.js").LinksData} */
export function buildLinks(pass, kind) {
  const [queries, keys] = pass.axes[kind] ?? [pass.probe?.target ?? [], pass.source],
    outputRow = firstPredictedRow(kind, queries.length, pass);
  return {
    keys,
    queries,
    output: outputRow === null ? null : pass.probe,
    outputRow: outputRow ?? 0,
    titles: [...columnTitles(pass, kind), pass.outputTitle ?? "guess"],
    hasMemory: Boolean(pass.axes.cross),
  };
}

/** @param {any} pass @param {string} kind */
function columnTitles({ axes }, kind) {
  if (!axes.cross && axes[kind]) return ["keys", "queries"];
  if (kind === "encoder") return ["input", "input"];
  return kind === "decoder" ? ["so far", "so far"] : ["input", "target"];
}
