// The state of an exported model's page: what is typed and switched, and what follows from it.
import { computed, effect, signal } from "../vendor/preact.js";
import { keyOf } from "../engine/forward_pass.js";
import { buildModel } from "../engine/model.js";
import { readSafetensors } from "../engine/safetensors.js";
import { Scorer, measureMeanOutputs } from "../engine/scores.js";
import { EOS, SOS, Vocabulary, targetOf } from "../engine/tasks.js";

/** @typedef {import("../engine/forward_pass.js").Component} Component */
/** @typedef {import("../engine/scores.js").Example} Example */

/**
 * @typedef {object} PageData
 * @property {string} architecture
 * @property {any} model settings
 * @property {string} name
 * @property {string} url of the playground
 * @property {string} task
 * @property {string} description
 * @property {string[]} symbols
 * @property {number} n_symbols that the task counts with
 * @property {string} accepts
 * @property {number} max_tokens of an output
 * @property {string} input at the start
 * @property {[number, number][]} curve exact match by step
 * @property {Example[]} examples held out
 */

/** @param {string} id */
const textOf = (id) => document.getElementById(id)?.textContent?.trim() ?? "";

export const data = /** @type {PageData} */ (JSON.parse(textOf("data")));
const weights = Uint8Array.from(atob(textOf("weights")), (character) => character.charCodeAt(0));
export const model = buildModel(data.architecture, data.model, readSafetensors(weights.buffer));
const vocabulary = new Vocabulary(data.symbols),
  SMALL_SAMPLE = 32; // examples for mean outputs and for the importance of heads

export const text = signal(data.input);
export const switchedOff = signal(/** @type {Component[]} */ ([]));
export const method = signal(/** @type {"zero" | "mean"} */ ("zero"));
export const openBlock = signal(""); // the name of a sublayer
export const row = signal(/** @type {number | null} */ (null)); // the query that is pointed at

export const isSingle = model.kinds.length === 1;
/** The head whose links are shown: the last layer's first one, of cross-attention if there is. */
export const selected = signal(
  /** @type {Component} */ ({
    kind: isSingle ? model.kinds[0] : "cross",
    layer: model.config.n_layers - 1,
    head: 0,
  }),
);

/** @param {Component} component */
export function select(component) {
  selected.value = component;
  row.value = null;
}

const NAMES = /** @type {Record<string, string>} */ ({
  encoder: isSingle ? "self-attention" : "encoder self-attention",
  decoder: "masked self-attention",
  cross: "cross-attention",
  "source positions": "input positions",
  "target positions": isSingle ? "positions" : "output positions",
});

/** Return the name of a part, with layer and head if there are several. @param {Component} part */
export function nameOf({ kind, layer, head }) {
  const { n_layers, n_heads } = model.config,
    isOnly = layer === null || n_layers * n_heads === 1,
    number = isOnly ? "" : ` ${layer + 1}${head === null ? "" : `.${head + 1}`}`;
  return (NAMES[kind] ?? kind) + number;
}

/** The tokens of the input, or the problem of the text. */
const typed = computed(() => {
  try {
    const tokens = vocabulary.encode(text.value),
      most = model.config.max_positions - 1;
    if (!tokens.length) return { problem: `Type a sequence of ${data.accepts}.` };
    if (tokens.length > most) return { problem: `This model reads at most ${most} tokens.` };
    return { tokens };
  } catch (error) {
    return { problem: `${/** @type {Error} */ (error).message}; use ${data.accepts}.` };
  }
});
export const problem = computed(() => typed.value.problem ?? "");

let lastSource = /** @type {number[]} */ ([]);
/** The last input without a problem, ending with EOS. */
const source = computed(() => {
  const { tokens } = typed.value;
  if (tokens) lastSource = [...tokens, EOS];
  return lastSource;
});

/** Call back after the frame that shows what has just changed. @param {() => void} callback */
const afterFrame = (callback) => requestAnimationFrame(() => setTimeout(callback));

let meanOf = /** @type {ReturnType<typeof measureMeanOutputs> | null} */ (null);
/** @param {Component[]} components */
function ablate(components) {
  const isMean = method.value === "mean";
  if (isMean) meanOf ??= measureMeanOutputs(model, data.examples.slice(0, SMALL_SAMPLE));
  return components.map((component) => ({
    component,
    output: isMean ? meanOf?.(component) : undefined,
  }));
}
const ablations = computed(() => ablate(switchedOff.value));

const intact = computed(() => model.generate(source.value, data.max_tokens)),
  output = computed(() =>
    ablations.value.length
      ? model.generate(source.value, data.max_tokens, ablations.value)
      : intact.value,
  );

/** The right output, and whether it is that of the task or of the intact model. */
export const reference = computed(() => {
  const symbols = source.value.slice(0, -1).map((token) => token - SOS - 2),
    target = targetOf(data.task, symbols, data.n_symbols);
  return target
    ? { tokens: [...target.map((symbol) => symbol + SOS + 2), EOS], isTarget: true }
    : { tokens: intact.value.tokens, isTarget: false };
});

/** The tokens of the output beside the right ones, with probabilities. */
export const outputTokens = computed(() => {
  const { tokens, probabilities } = output.value,
    right = reference.value.tokens;
  return Array.from({ length: Math.max(tokens.length, right.length) }, (_, i) => ({
    name: i < tokens.length ? vocabulary.names[tokens[i]] : "\u00a0",
    expected: i < right.length ? vocabulary.names[right[i]] : "",
    probability: i < tokens.length ? probabilities[i][tokens[i]] : 0,
    isRight: tokens[i] === right[i],
    isEnd: tokens[i] === EOS,
  }));
});

/** What the diagram shows: a pass over the input and the model's own output. */
export const picture = computed(() => {
  const { tokens, probabilities } = output.value,
    input = [SOS, ...tokens.slice(0, -1)],
    { pass } = model.forward(source.value, input, ablations.value),
    names = (/** @type {number[]} */ ids) => vocabulary.decode(ids),
    { length } = source.value,
    blanks = [...source.value, ...Array(Math.max(0, tokens.length - length)).fill(SOS)],
    single = model.kinds[0] === "encoder" ? blanks : [...source.value, ...input.slice(1)];
  return {
    pass,
    axes: model.kinds.includes("cross")
      ? {
          encoder: [names(source.value), names(source.value)],
          decoder: [names(input), names(input)],
          cross: [names(input), names(source.value)],
        }
      : { [model.kinds[0]]: [names(single), names(single)] },
    output: {
      predicted: names(tokens),
      target: tokens.map((_, i) => names(reference.value.tokens)[i] ?? ""),
      probability: tokens.map((token, i) => Math.round(1000 * probabilities[i][token])),
    },
  };
});

/** The picture on screen: it follows the output one frame later, because it takes longer. */
export const displayed = signal(picture.value);
effect(() => {
  void output.value;
  afterFrame(() => (displayed.value = picture.value));
});

const keys = computed(() => new Set(switchedOff.value.map(keyOf)));

/** @param {Component} component */
export const isOff = (component) => keys.value.has(keyOf(component));

/** Switch components off, or on if all of them are off. @param {Component[]} components */
export function toggle(components) {
  const toggled = new Set(components.map(keyOf)),
    others = switchedOff.value.filter((each) => !toggled.has(keyOf(each)));
  switchedOff.value = components.every(isOff) ? others : [...others, ...components];
}

export function showAnotherExample() {
  const { source: tokens } = data.examples[Math.floor(Math.random() * data.examples.length)];
  text.value = vocabulary.decode(tokens.slice(0, -1)).join(" ");
}

/** @param {number} share */
export const percent = (share) => `${Math.round(100 * share)} %`;

/** Return the 95 % interval of a share (Wilson 1927). @param {number} right @param {number} n */
export function shareInterval(right, n) {
  const z = 1.96,
    share = right / n,
    center = (share + (z * z) / (2 * n)) / (1 + (z * z) / n),
    half = (z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n));
  return [Math.max(0, center - half), Math.min(1, center + half)];
}

// The score of held-out sequences and the importance of parts: in small pieces between events.

const PIECE_MS = 8;
export const score = signal({ right: 0, measured: 0 });
/** The share of right tokens that are wrong without a part alone, by the part's key. */
export const importance = signal(/** @type {Map<string, number>} */ (new Map()));

const POSITION_VECTORS = ["learned", "learned-from-end", "randomized", "sinusoidal"];

/** What can be switched off: heads, blocks, and position vectors that are added to tokens. */
export const parts = [
  ...model.components(),
  ...(POSITION_VECTORS.includes(model.config.position_type)
    ? (isSingle ? ["target positions"] : ["source positions", "target positions"]).map((kind) => ({
        kind,
        layer: null,
        head: null,
      }))
    : []),
];

let pieceEnd = 0;
/** Let the page handle events and draw, after each piece of work. */
async function giveWay() {
  if (performance.now() < pieceEnd) return;
  await new Promise((resolve) => setTimeout(resolve));
  pieceEnd = performance.now() + PIECE_MS;
}

const scorer = new Scorer(model, data.examples);
let scoreNumber = 0;

/** Score the held-out examples with what is switched off; a later call ends an earlier one. */
export async function measureScore() {
  const number = ++scoreNumber,
    off = ablations.value,
    count = data.examples.length;
  await new Promise((resolve) => afterFrame(() => resolve(null))); // the new output comes first
  for (let i = 0, right = 0; i < count; i++) {
    await giveWay();
    if (number !== scoreNumber) return;
    right += Number(scorer.countRight(i, off) === data.examples[i].labels.length);
    if (i % 16 === 15 || i === count - 1) score.value = { right, measured: i + 1 };
  }
}

let importanceNumber = 0;

/** Measure which share of right tokens depends on each part; a later call ends an earlier one. */
export async function measureImportance() {
  const number = ++importanceNumber,
    shares = new Map();
  let whole = 0;
  for (const off of [[], ...parts.map((part) => [part])]) {
    const ablated = ablate(off);
    let right = 0;
    for (let i = 0; i < Math.min(SMALL_SAMPLE, data.examples.length); i++) {
      await giveWay();
      if (number !== importanceNumber) return;
      right += scorer.countRight(i, ablated);
    }
    if (!off.length) whole = right;
    else shares.set(keyOf(off[0]), whole ? Math.max(0, 1 - right / whole) : 0);
    importance.value = new Map(shares);
  }
}
