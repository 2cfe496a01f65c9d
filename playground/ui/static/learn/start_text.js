// The sections of Start, and the texts with the numbers of the displayed pass.
import { formatCount, formatNumber, formatPercent } from "../shared/format.js";
import { buildStacks, describeHead } from "../shared/diagram/structure.js";

/** @typedef {{ kind: string, layer: number, head: number }} Selection */

/**
 * The sections in their order. `kinds` are the blocks that a section explains, `select` is the kind
 * whose head is displayed.
 */
export const PARTS = [
  {
    value: "training",
    title: "A transformer learns to reverse digits",
    text:
      "This model began with random parameters and received no rule, only examples. Its " +
      "training plays again here. Each small square belongs to one attention head, explained " +
      "below. A dark cell or a thick line means: this output position reads much from that input.",
    task: "Scroll to see how it works, or drag the slider to an earlier step.",
    kinds: [],
    select: "cross",
  },
  {
    value: "tokens",
    title: "Tokens become vectors",
    text:
      "The model reads tokens: here digits, with EOS (end of sequence) at the end. Each token " +
      "becomes a vector of numbers, its embedding. A second vector for the position is added, " +
      "because attention alone does not depend on the order (Vaswani et al., 2017).",
    task: "Type another sequence above the diagram.",
    kinds: [],
    select: "encoder",
  },
  {
    value: "encoder",
    title: "Encoder self-attention: query, key, value",
    text:
      "Attention moves information between positions. Each of its heads computes three vectors " +
      "for each token: a query Q, a key K and a value V. The dot products of a query with all " +
      "keys, divided by the square root of their size, are its scores. A softmax turns them " +
      "into attention weights, which sum to 1. The output of the head is the sum of the values " +
      "with these weights.",
    task: "Click another head: each has its own pattern.",
    kinds: ["encoder"],
    select: "encoder",
  },
  {
    value: "residual",
    title: "The residual stream and the feed-forward network",
    text:
      "Every block adds its output to the vector of the token. This running sum is the residual " +
      "stream (Elhage et al., 2021). In this model (pre-norm), a block reads a copy of it, " +
      "scaled to a common size, and nothing replaces the sum. After attention, the feed-forward " +
      "network computes a vector from each position alone, and adds it.",
    task:
      "The number beside a block is the norm (length) of the vector that it adds, divided by the " +
      "norm of the vector that it is added to.",
    kinds: ["feed-forward"],
    select: "encoder",
  },
  {
    value: "decoder",
    title: "Decoder: causal mask and cross-attention",
    text:
      "The decoder generates the output token by token. A causal mask hides later tokens from " +
      "its self-attention; their cells are gray. In cross-attention, the queries come from the " +
      "decoder; the keys and values come from the encoder's output. Its weights often fall on " +
      "the token to copy; a weight alone is no proof of copying (Jain and Wallace, 2019).",
    task: "Point at an output token to see the input positions that its prediction attends to.",
    kinds: ["decoder", "cross"],
    select: "cross",
  },
  {
    value: "output",
    title: "Probabilities and the loss",
    text:
      "The last vector of each position becomes a probability for every token of the vocabulary. " +
      "The loss is the mean of −log(probability of the correct token). Training changes all " +
      "weights, step by step, to lower it.",
    task: "Type a sequence of ten digits: which token is the least certain?",
    kinds: [],
    select: "cross",
  },
];

/** Return the part that explains a block. @param {string} kind */
export const partOfBlock = (kind) =>
  PARTS.find((part) => part.kinds.includes(kind))?.value ?? "tokens";

/**
 * Return the strongest attention weight of a head.
 * @param {any} pass
 * @param {Selection} selection
 */
export function strongestLink(pass, { kind, layer, head }) {
  const weights = pass.attention[kind][layer][head],
    columns = pass.axes[kind][1].length,
    // The first query of a decoder has only one key to attend to.
    from = kind === "decoder" ? columns : 0;
  let best = from;
  for (let i = from; i < weights.length; i++) if (weights[i] > weights[best]) best = i;
  return { query: Math.floor(best / columns), key: best % columns, weight: weights[best] / 1000 };
}

function describeSelection(pass, selection) {
  const { kind, layer, head } = selection,
    [queries, keys] = pass.axes[kind],
    { key, query, weight } = strongestLink(pass, selection);
  return (
    `${describeHead(kind, layer, head, false)}: its largest weight is ${weight.toFixed(2)}, from ` +
    `the query of ${queries[query]} (position ${query + 1}) to the key of ${keys[key]} ` +
    `(position ${key + 1}).`
  );
}

function describeContributions(info, pass) {
  const blocks = buildStacks(info, pass.attention)
    .flatMap(({ side, layers }) => layers.flat().map((block) => ({ ...block, side })))
    .filter(({ component }) => pass.contributions?.[component] !== undefined)
    .sort((a, b) => pass.contributions[b.component] - pass.contributions[a.component]);
  if (!blocks.length) return "";
  const [{ component, layer, side, title }] = blocks;
  return (
    `Largest here: ${title.toLowerCase()} of ${side} layer ${layer + 1}. It adds ` +
    `${pass.contributions[component].toFixed(2)} times the norm of the vectors it is added to.`
  );
}

function describeOutput(pass, loss) {
  const { predicted, probability, target } = pass.probe,
    isRight = target.map((token, i) => token === predicted[i]),
    lowest = probability.indexOf(Math.min(...probability));
  return (
    `${isRight.filter(Boolean).length} of ${formatCount(target.length, "token")} are correct. ` +
    `The least certain prediction is ${predicted[lowest]}, with a probability of ` +
    `${formatPercent(probability[lowest] / 1000)}.` +
    (loss === undefined ? "" : ` Training loss at step ${pass.step}: ${formatNumber(loss)}.`)
  );
}

/**
 * Return a sentence with the numbers of a part.
 * @param {string} part
 * @param {{ info: any, pass: any, selection: Selection, loss?: number }} view
 */
export function describePart(part, { info, loss, pass, selection }) {
  const [sources] = pass.axes.encoder,
    [targets] = pass.axes.cross;
  if (part === "tokens")
    return (
      `The encoder has ${sources.length} vectors, one for each token of ${sources.join(" ")}. ` +
      `The decoder has ${targets.length}, one for each token to predict.`
    );
  if (part === "residual") return describeContributions(info, pass);
  if (part === "output" || part === "training") return describeOutput(pass, loss);
  return describeSelection(pass, selection);
}
