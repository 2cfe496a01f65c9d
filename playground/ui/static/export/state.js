// The state of an exported model's page: what is typed and switched, and what follows from it.
import { computed, effect, signal } from "../vendor/preact.js";
import { buildModel } from "../engine/model.js";
import { includes, nameOf, toggle } from "../engine/parts.js";
import { readSafetensors } from "../engine/safetensors.js";
import { createScorer, measureMeanOutputs } from "../engine/scores.js";
import { EOS, FIRST_SYMBOL, SOS, Vocabulary, targetOf } from "../engine/tasks.js";
import { firstPredictedRow } from "../train/diagram/structure.js";
/** @import { Component, Example } from "../engine/types.js" */

const SMALL_SAMPLE = 32; // examples for mean outputs and for the importance of parts
const PIECE_MS = 8; // of work between two events

const textOf = (id) => document.getElementById(id)?.textContent?.trim() ?? "";
/** What playground/reports/interactive_page.py writes. @type {any} */
export const data = JSON.parse(textOf("data"));
const weights = Uint8Array.from(atob(textOf("weights")), (character) => character.charCodeAt(0));
export const model = buildModel(data.architecture, data.model, readSafetensors(weights.buffer));
export const parts = model.components(); // what can be switched off
export const isSingle = model.kinds.length === 1;
const vocabulary = new Vocabulary(data.symbols),
  examples = /** @type {Example[]} */ (data.examples);

export const text = signal("");
export const problem = signal(""); // of the text
const source = signal(/** @type {number[]} */ ([])); // ends with EOS
export const switchedOff = signal(/** @type {Component[]} */ ([]));
export const method = signal(/** @type {"zero" | "mean"} */ ("zero"));
export const openBlock = signal(""); // the name of a sublayer
export const row = signal(/** @type {number | null} */ (null)); // the query that is pointed at
/** The head whose links are shown: at first, of the last layer, of cross-attention if there is. */
export const selected = signal(
  parts.findLast(({ kind, head }) => kind === model.kinds.at(-1) && head === 0) ?? parts[0],
);

/** Read the input: it becomes the source, or has a problem and the last source stays. */
export function type(/** @type {string} */ typed) {
  const most = model.config.max_positions - 1;
  text.value = typed;
  problem.value = "";
  try {
    const tokens = vocabulary.encode(typed);
    if (!tokens.length) problem.value = `Type a sequence of ${data.accepts}.`;
    else if (tokens.length > most) problem.value = `This model reads at most ${most} tokens.`;
    else source.value = [...tokens, EOS];
  } catch (error) {
    problem.value = `${/** @type {Error} */ (error).message}; use ${data.accepts}.`;
  }
}
type(data.input);

export function typeAnotherExample() {
  const { source: tokens } = examples[Math.floor(Math.random() * examples.length)];
  type(vocabulary.decode(tokens.slice(0, -1)).join(" "));
}

/** @type {import("../train/diagram/switches.js").Switches} */
export const switches = {
  isOff: (part) => includes(switchedOff.value, part),
  toggle: (some) => (switchedOff.value = toggle(switchedOff.value, some)),
  nameOf: (part) => nameOf(part, isSingle, model.config.n_layers * model.config.n_heads === 1),
};

export function select(/** @type {Component} */ head) {
  selected.value = head;
  row.value = null;
}

let meanOf = /** @type {ReturnType<typeof measureMeanOutputs> | null} */ (null);
/** @param {Component[]} components */
function ablate(components) {
  if (method.value === "zero") return components.map((component) => ({ component }));
  const mean = (meanOf ??= measureMeanOutputs(model, examples.slice(0, SMALL_SAMPLE)));
  return components.map((component) => ({ component, output: mean(component) }));
}
const ablations = computed(() => ablate(switchedOff.value)),
  intact = computed(() => model.generate(source.value, data.max_tokens)),
  output = computed(() =>
    ablations.value.length
      ? model.generate(source.value, data.max_tokens, ablations.value)
      : intact.value,
  );

/** The right output: that of the task or, where the page does not know it, of the whole model. */
export const reference = computed(() => {
  const symbols = source.value.slice(0, -1).map((token) => token - FIRST_SYMBOL),
    target = targetOf(data.task, symbols, data.n_symbols);
  return target
    ? { tokens: [...target.map((symbol) => symbol + FIRST_SYMBOL), EOS], isTarget: true }
    : { tokens: intact.value.tokens, isTarget: false };
});

/** The tokens of the output beside the right ones, with probabilities. */
export const outputTokens = computed(() => {
  const { tokens, probabilities } = output.value,
    right = reference.value.tokens;
  return Array.from({ length: Math.max(tokens.length, right.length) }, (_, i) => ({
    name: vocabulary.names[tokens[i]] ?? "–",
    expected: vocabulary.names[right[i]] ?? "–",
    probability: probabilities[i]?.[tokens[i]] ?? 0,
    isRight: tokens[i] === right[i],
    isEnd: tokens[i] === EOS,
  }));
});
export const isRight = computed(() => outputTokens.value.every((token) => token.isRight));

/** What the diagram shows: a pass over the input and the model's own output. */
export const picture = computed(() => {
  const { tokens, probabilities } = output.value,
    input = [SOS, ...tokens.slice(0, -1)],
    { pass } = model.forward(source.value, input, ablations.value),
    [kind] = model.kinds,
    blanks = Array(Math.max(0, tokens.length - source.value.length)).fill(SOS),
    read = vocabulary.decode(source.value),
    written = vocabulary.decode(input),
    both = [...read, ...vocabulary.decode(kind === "encoder" ? blanks : input.slice(1))];
  return {
    pass,
    // The names of the rows and columns of the maps, by kind
    axes: /** @type {Record<string, string[][]>} */ (
      isSingle
        ? { [kind]: [both, both] }
        : { encoder: [read, read], decoder: [written, written], cross: [written, read] }
    ),
    output: {
      predicted: vocabulary.decode(tokens),
      target: tokens.map((_, i) => vocabulary.names[reference.value.tokens[i]] ?? ""),
      probability: tokens.map((token, i) => Math.round(1000 * probabilities[i][token])),
    },
  };
});

/** Call back after the frame that shows what has just changed. @param {() => void} callback */
const afterFrame = (callback) => requestAnimationFrame(() => setTimeout(callback));

/** The picture on screen: it follows the output one frame later, because it takes longer. */
export const displayed = signal(picture.value);
effect(() => {
  void output.value;
  afterFrame(() => (displayed.value = picture.value));
});

/**
 * Return the weights (QM) of a head, the tokens of its rows and columns, and the row that predicts
 * the first token of the output; null if none does.
 * @param {Component} head
 */
export function weightsOf({ kind, layer, head }) {
  const { pass, axes, output } = displayed.value,
    [queries, keys] = axes[kind],
    size = queries.length * keys.length,
    from = Number(head) * size;
  return {
    weights: pass.attention[kind][Number(layer)].subarray(from, from + size),
    queries,
    keys,
    outputRow: firstPredictedRow(kind, queries.length, { axes, probe: output }),
  };
}

/** How many held-out examples are right with what is switched off, of those measured so far. */
export const score = signal(/** @type {{ right: number, measured: number } | null} */ (null));
/** The share of right tokens that are wrong without a part alone. */
export const importance = signal(/** @type {Map<Component, number>} */ (new Map()));
const countRight = createScorer(model, examples);

/**
 * Return a function that does work in pieces, between events and after the next frame. A later call
 * ends an earlier one.
 * @param {() => Generator<void>} work yields between two pieces
 */
function inPieces(work) {
  let latest = 0;
  return async () => {
    const number = ++latest;
    await new Promise((resolve) => afterFrame(() => resolve(null)));
    const steps = work();
    let end = 0; // the first piece, too, waits for events
    while (number === latest && !steps.next().done) {
      if (performance.now() >= end) {
        await new Promise((resolve) => setTimeout(resolve));
        end = performance.now() + PIECE_MS;
      }
    }
  };
}

export const measureScore = inPieces(function* () {
  const off = ablations.value;
  for (let i = 0, right = 0; i < examples.length; i++) {
    yield;
    right += Number(countRight(i, off) === examples[i].labels.length);
    if (i % 16 === 15 || i === examples.length - 1) score.value = { right, measured: i + 1 };
  }
});

/** Count the right tokens of a sample without a part. @param {Component[]} off */
function* countSample(off) {
  const ablated = ablate(off);
  let right = 0;
  for (let i = 0; i < Math.min(SMALL_SAMPLE, examples.length); i++) {
    yield;
    right += countRight(i, ablated);
  }
  return right;
}

export const measureImportance = inPieces(function* () {
  const whole = yield* countSample([]);
  for (const part of parts) {
    const share = whole && Math.max(0, 1 - (yield* countSample([part])) / whole);
    importance.value = new Map(importance.value).set(part, share);
  }
});
