// One forward pass: the positions so far, what it records, and which outputs it replaces
// (inspection/hooks.py).
import { rowsOf } from "./linear.js";
/** @import { KeysAndValues } from "./attention.js" */
/** @import { Config } from "./model.js" */

/**
 * A part of a model that can be switched off. The kinds are "encoder", "decoder" and "cross" for
 * heads, "encoder feed-forward" and "decoder feed-forward" for blocks, "source positions" and
 * "target positions". Layers and heads count from 0.
 * @typedef {{ kind: string, layer: number | null, head: number | null }} Component
 */

/**
 * A component and what takes the place of its output: a row (of d_model or of a head's value size)
 * for each position, or nothing for zeros.
 * @typedef {{ component: Component, output?: Float32Array }} Ablation
 */

/** @param {Component} component */
export const keyOf = ({ kind, layer, head }) => `${kind}.${layer ?? ""}.${head ?? ""}`;

export class ForwardPass {
  /** @param {Config} config @param {number[]} source @param {Ablation[]} [ablations] */
  constructor(config, source, ablations = []) {
    this.config = config;
    this.source = source;
    this.ablations = new Map(ablations.map((each) => [keyOf(each.component), each]));
    /** The number of decoded positions, so the position of the next one. */
    this.first = 0;
    /** Keys and values of the decoded positions, by layer. @type {KeysAndValues[]} */
    this.cache = [];
    /** Attention weights (HQM) of each layer, by kind. @type {Record<string, Float32Array[]>} */
    this.attention = {};
    /** @type {Record<string, { query_QHK: Float32Array, key_MGK: Float32Array }[]>} */
    this.vectors = {};
    /** The mean of |f(x)| / |x| of each sublayer, by name. @type {Record<string, number>} */
    this.contributions = {};
    /** The outputs of all components, by key, if they are recorded. */
    this.outputs = /** @type {Map<string, Float32Array> | null} */ (null);
  }

  /**
   * Append new positions to the cache of a layer; return all so far.
   * @param {number} layer @param {KeysAndValues} added
   */
  extendCache(layer, added) {
    const earlier = this.cache[layer];
    this.cache[layer] = earlier
      ? {
          key_MGK: concatenate(earlier.key_MGK, added.key_MGK),
          value_MGV: concatenate(earlier.value_MGV, added.value_MGV),
        }
      : added;
    return this.cache[layer];
  }

  /**
   * @param {string} name of the sublayer @param {Float32Array} output_ND
   * @param {Float32Array} stream_ND the residual stream that it is added to
   */
  recordContribution(name, output_ND, stream_ND) {
    const stream = rowsOf(stream_ND, this.config.d_model),
      outputs = rowsOf(output_ND, this.config.d_model),
      ratios = outputs.map((row_D, n) => norm(row_D) / Math.max(norm(stream[n]), 1e-9));
    this.contributions[name] = ratios.reduce((a, b) => a + b) / ratios.length;
  }

  /**
   * Record the output of a component, some columns of x, and replace it in place.
   * @param {Component} component @param {Float32Array} x_NX @param {number} width X
   * @param {number} [column] the first one @param {number} [size] number of columns
   */
  replace(component, x_NX, width, column = 0, size = width) {
    const key = keyOf(component),
      ablation = this.ablations.get(key),
      nRows = x_NX.length / width,
      recorded = new Float32Array(this.outputs ? nRows * size : 0);
    if (!ablation && !this.outputs) return;
    this.outputs?.set(key, recorded);
    for (let n = 0; n < nRows; n++) {
      const row = x_NX.subarray(n * width + column, n * width + column + size),
        position = this.first + n;
      if (this.outputs) recorded.set(row, n * size);
      if (!ablation) continue;
      row.fill(0);
      if (ablation.output)
        row.set(ablation.output.subarray(position * size, (position + 1) * size));
    }
  }
}

/** @param {Float32Array} a @param {Float32Array} b */
function concatenate(a, b) {
  const both = new Float32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** @param {Float32Array} x_D */
function norm(x_D) {
  let sum = 0;
  for (let d = 0; d < x_D.length; d++) sum += x_D[d] ** 2;
  return Math.sqrt(sum);
}
