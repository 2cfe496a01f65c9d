// Scores of a model with components switched off, and the mean outputs for mean ablation
// (inspection/ablation.py, hooks.py).
import { ForwardPass } from "./forward_pass.js";
import { rowsOf } from "./linear.js";
import { argmax } from "./model.js";
import { keyOf } from "./parts.js";
import { SOS } from "./tasks.js";
/** @import { Model } from "./model.js" */
/** @import { Ablation, Component, Example } from "./types.js" */

const keepsMemory = (/** @type {Ablation} */ { component: { kind } }) =>
  !kind.startsWith("encoder") && kind !== "source positions";

/** Return the decoder's input for labels. @param {number[]} labels */
const inputOf = (labels) => [SOS, ...labels.slice(0, -1)];

/**
 * Return a function that runs an example with the right tokens as the decoder's input (teacher
 * forcing), and returns the logits of each token.
 * @param {Model} model @param {Example[]} examples
 */
export function createRunner(model, examples) {
  const { config } = model,
    // Most components follow the encoder, whose output is the same for all of them.
    memories = /** @type {ReturnType<Model["encode"]>[]} */ ([]);
  return (/** @type {number} */ index, /** @type {Ablation[]} */ ablations) => {
    const { source, labels } = examples[index],
      pass = new ForwardPass(config, source, labels.length, ablations);
    if (ablations.every(keepsMemory))
      pass.memory = memories[index] ??= model.encode(new ForwardPass(config, source, 0));
    return rowsOf(model.decode(inputOf(labels), pass), config.target_vocab_size);
  };
}

/** Count the right tokens. @param {Float32Array[]} rows of logits @param {number[]} labels */
export const countRight = (rows, labels) =>
  rows.filter((row, t) => argmax(row) === labels[t]).length;

/**
 * Return the log-probability of all tokens, in nats.
 * @param {Float32Array[]} rows of logits @param {number[]} labels
 */
export function logProbabilityOf(rows, labels) {
  const ofToken = (/** @type {Float32Array} */ row, /** @type {number} */ label) => {
    const max = Math.max(...row);
    return row[label] - max - Math.log(row.reduce((sum, x) => sum + Math.exp(x - max), 0));
  };
  return rows.reduce((sum, row, t) => sum + ofToken(row, labels[t]), 0);
}

/**
 * Return a function that gives the mean output of a component at each position, over examples. A
 * position that no example has gets the mean of all positions, and so do all position vectors, of
 * which each position has its own.
 * @param {Model} model @param {Example[]} examples
 */
export function measureMeanOutputs(model, examples) {
  const { d_model, valueSize, max_positions } = model.config,
    outputs = examples.map((example) => recordOutputs(model, example));
  return (/** @type {Component} */ component) => {
    const isPositions = component.kind.endsWith("positions"),
      width = component.head === null ? d_model : valueSize,
      all = outputs.map((each) => rowsOf(each.get(keyOf(component)) ?? new Float32Array(), width)),
      longest = all.reduce((a, b) => (b.length > a.length ? b : a)),
      everywhere = meanOf(isPositions ? longest : all.flat(), width),
      means = new Float32Array(2 * max_positions * width);
    for (let position = 0; position < 2 * max_positions; position++) {
      const rows = all.flatMap((each) => each.slice(position, position + 1));
      means.set(rows.length && !isPositions ? meanOf(rows, width) : everywhere, position * width);
    }
    return means;
  };
}

/**
 * Return the outputs of all components for an example, by key.
 * @param {Model} model @param {Example} example
 */
export function recordOutputs(model, { source, labels }) {
  const pass = new ForwardPass(model.config, source, labels.length);
  pass.outputs = new Map();
  model.decode(inputOf(labels), pass);
  return pass.outputs;
}

/** @param {Float32Array[]} rows @param {number} width */
function meanOf(rows, width) {
  const sum = new Float64Array(width);
  for (const row of rows) for (let i = 0; i < width; i++) sum[i] += row[i];
  return sum.map((value) => value / rows.length);
}
