// The state of an exported model's page: what is typed and switched, and what follows from it.
import { computed, effect, signal } from "../vendor/preact.js";
import { BrowserModel, SMALL_SAMPLE } from "../shared/browser_model.js";
import { includes, measureImportance, nameOf, toggle } from "../engine/parts.js";
import { EOS } from "../engine/tasks.js";
import { formatMessage, formatToken } from "../shared/format.js";
import { buildStacks, hasHead } from "../shared/diagram/structure.js";
/** @import { Component } from "../engine/types.js" */
/** @import { Block, Selection } from "../shared/diagram/structure.js" */

const textOf = (id) => document.getElementById(id)?.textContent?.trim() ?? "";
/** What playground/reports/interactive_page.py writes. @type {any} */
export const data = JSON.parse(textOf("data"));
const weights = Uint8Array.from(atob(textOf("weights")), (character) => character.charCodeAt(0)),
  browserModel = new BrowserModel(data, weights.buffer),
  { model, vocabulary } = browserModel,
  { n_layers, n_heads } = model.config,
  examples = data.examples.length;
export const parts = model.components(); // what can be switched off
export const isSingle = model.kinds.length === 1;

export const text = signal(data.input);
export const problem = signal(""); // of the text
const input = signal(browserModel.read(data.input)); // of the last text without a problem
export const switchedOff = signal(/** @type {Component[]} */ ([]));
export const method = signal(/** @type {"zero" | "mean"} */ ("zero"));
export const openBlock = signal(/** @type {Block | null} */ (null));
export const row = signal(/** @type {number | null} */ (null)); // that the user points at
export const query = signal(0); // that the open block explains
/** The head whose links are shown: at first, of the last layer, of cross-attention if there is. */
export const selected = signal(
  /** @type {Selection} */ ({ kind: model.kinds.at(-1), layer: n_layers - 1, head: 0 }),
);

/** Read the input: it becomes the source, or has a problem and the last source stays. */
export function type(/** @type {string} */ typed) {
  text.value = typed;
  problem.value = "";
  try {
    input.value = browserModel.read(typed);
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    problem.value = formatMessage(`${message}; type a sequence of ${data.accepts}`);
  }
}

export function typeAnotherExample() {
  const { source } = data.examples[Math.floor(Math.random() * examples)];
  type(vocabulary.decode(source.slice(0, -1)).join(" "));
}

export const switches = /** @type {import("../shared/diagram/switches.js").Switches} */ ({
  isOff: (part) => includes(switchedOff.value, part),
  toggle: (some) => (switchedOff.value = toggle(switchedOff.value, some)),
  nameOf: (part) => nameOf(part, isSingle, n_layers * n_heads === 1),
});

/** Select a head. An open block stays open if it has this head. */
export function select(/** @type {string} */ kind, /** @type {number} */ layer, head = 0) {
  selected.value = { kind, layer, head };
  if (openBlock.value && !hasHead(openBlock.value, selected.value)) openBlock.value = null;
}

/** Open a block, or close it. The links are those of a head of it. @param {Block} block */
export function toggleBlock(block) {
  const isOpen = openBlock.value === block;
  if (!isOpen && block.heads && !hasHead(block, selected.value)) select(block.kind, block.layer);
  openBlock.value = isOpen ? null : block;
}

/** The right output: the target or, where it is not known, the output of the whole model. */
const reference = computed(() => {
  const { source, labels } = input.value;
  return labels ?? browserModel.write(source, labels, []);
});

const ablations = computed(() => browserModel.ablate(switchedOff.value, method.value)),
  output = computed(() => {
    const { source, labels } = input.value;
    return browserModel.write(source, labels, ablations.value);
  });

const nextTask = () => new Promise((resolve) => setTimeout(resolve)),
  nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));

/** Return what the diagram shows: a pass over the input and this output. */
function paint() {
  const { axes, probe, ...picture } = browserModel.picture(
      input.value.source,
      output.value,
      ablations.value,
    ),
    target = output.value.map((_, i) => vocabulary.names[reference.value[i]] ?? "–"),
    targetAxes = axes.cross && { cross: [target, axes.cross[1]] };
  return {
    ...picture,
    axes: { ...axes, ...targetAxes },
    probe: { ...probe, target },
    outputTitle: "output",
  };
}
/** The pass on screen: it follows the output one frame later, because it takes longer. */
export const pass = signal(paint());
effect(() => {
  const { value } = output;
  nextFrame()
    .then(nextTask)
    .then(() => value === output.value && (pass.value = paint()));
});
export const stacks = buildStacks(
  { architecture: data.architecture, n_layers },
  pass.value.attention,
);

/** Whether the right output is known: otherwise, that of the whole model takes its place. */
export const hasTarget = computed(() => input.value.labels !== null);

/** The tokens of the output beside the right ones, with probabilities. */
export const outputTokens = computed(() => {
  const { value: written } = output,
    { probability } = pass.value.probe,
    right = reference.value;
  return Array.from({ length: Math.max(written.length, right.length) }, (_, i) => ({
    name: vocabulary.names[written[i]] ?? "–",
    expected: vocabulary.names[right[i]] ?? "–",
    probability: (probability[i] ?? 0) / 1000,
    isRight: written[i] === right[i],
    isEnd: written[i] === EOS,
  }));
});
export const isRight = computed(() => outputTokens.value.every((token) => token.isRight));

/** How the query of the open block gets its weights. */
export const scores = computed(() => {
  if (!openBlock.value?.heads) return null;
  const axes = pass.value.axes[selected.value.kind].map((names) => names.map(formatToken)),
    options = { ...selected.value, query: Math.min(query.value, axes[0].length - 1) };
  return { ...browserModel.scores(options), axes, options };
});

/** How many held-out examples are right with what is switched off, of those measured so far. */
export const score = signal(/** @type {{ right: number, measured: number } | null} */ (null));
/** The share of right tokens that are wrong without a part alone, by key. */
export const importance = signal(/** @type {Map<string, number>} */ (new Map()));

/**
 * Count right examples and tokens, in pieces between events and after the next frame, until all are
 * counted or the counts are of no use.
 * @param {number} n examples @param {Component[]} off @param {() => boolean} isCurrent
 * @returns {AsyncGenerator<{ right: number, tokens: number, measured: number }>} the counts so far
 */
async function* count(n, off, isCurrent) {
  await nextFrame();
  for (let right = 0, tokens = 0, measured = 0; measured < n;) {
    await nextTask();
    if (!isCurrent()) return;
    const piece = browserModel.count(measured, n, off, method.value);
    right += piece.right;
    tokens += piece.tokens;
    measured = piece.next;
    yield { right, tokens, measured };
  }
}

/** Count the right outputs, until a part is switched. */
export async function measureScore() {
  const { value: off } = switchedOff,
    chosen = method.value,
    isCurrent = () => off === switchedOff.value && chosen === method.value;
  for await (const { right, measured } of count(examples, off, isCurrent))
    score.value = { right, measured };
}

/** Measure all parts, until "off" means something else. */
export function measureAll() {
  const chosen = method.value,
    isCurrent = () => chosen === method.value;
  async function countTokens(/** @type {Component[]} */ off) {
    let right = 0;
    for await (const { tokens } of count(Math.min(SMALL_SAMPLE, examples), off, isCurrent))
      right = tokens;
    return isCurrent() ? right : null;
  }
  return measureImportance(parts, countTokens, (shares) => (importance.value = shares));
}
