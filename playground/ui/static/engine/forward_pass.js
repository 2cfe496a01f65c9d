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
 *
 * A component and what takes the place of its output: a row (of d_model or of a head's value size)
 * for each position, or nothing for zeros.
 * @typedef {{ component: Component, output?: Float32Array }} Ablation
 */

/** @param {Component} component */
export const keyOf = ({ kind, layer, head }) => `${kind}.${layer ?? ""}.${head ?? ""}`;

export class ForwardPass {
  /** The number of decoded positions, so the position of the next one. */
  first = 0;
  /** Keys and values of the encoder's output, by layer. @type {KeysAndValues[] | null} */
  memory = null;
  /** Keys and values of the decoded positions, by layer. @type {KeysAndValues[]} */
  cache = [];
  /** Attention weights (HQM) of each layer, by kind. @type {Record<string, Float32Array[]>} */
  attention = {};
  /** @type {Record<string, { query_QHK: Float32Array, key_MGK: Float32Array }[]>} */
  vectors = {};
  /** The mean of |f(x)| / |x| of each sublayer, by name. @type {Record<string, number>} */
  contributions = {};
  /**
   * The outputs of all components, by key, if recorded.
   * @type {Map<string, Float32Array> | null}
   */
  outputs = null;
  /** Logits that an encoder-only model has not returned yet. @type {Float32Array | null} */
  logits_WV = null;

  /**
   * @param {Config} config @param {number[]} source @param {number} maxTokens of the output
   * @param {Ablation[]} [ablations]
   */
  constructor(config, source, maxTokens, ablations = []) {
    this.config = config;
    this.source = source;
    this.maxTokens = maxTokens;
    this.ablations = new Map(ablations.map((each) => [keyOf(each.component), each]));
  }

  /**
   * Append positions to the cache; return all.
   * @param {number} layer @param {KeysAndValues} added
   */
  extendCache(layer, added) {
    const earlier = this.cache[layer];
    if (earlier)
      added = {
        key_MGK: concatenate(earlier.key_MGK, added.key_MGK),
        value_MGV: concatenate(earlier.value_MGV, added.value_MGV),
      };
    return (this.cache[layer] = added);
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
      ablation = this.ablations.get(key);
    if (!ablation && !this.outputs) return;
    const rows = rowsOf(x_NX, width).map((row) => row.subarray(column, column + size)),
      recorded = new Float32Array(rows.length * size);
    this.outputs?.set(key, recorded);
    rows.forEach((row, n) => {
      const position = this.first + n;
      recorded.set(row, n * size);
      if (!ablation) return;
      row.fill(0);
      if (ablation.output)
        row.set(ablation.output.subarray(position * size, (position + 1) * size));
    });
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
