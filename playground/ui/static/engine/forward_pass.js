// One forward pass: the positions so far, what it records, and which outputs it replaces
// (inspection/hooks.py).
import { rowsOf } from "./linear.js";
import { keyOf } from "./parts.js";
/** @import { Ablation, Component, Config, KeysAndValues } from "./types.js" */
/** @typedef {{ query_QHK: Float32Array, key_MGK: Float32Array }} Vectors */

export class ForwardPass {
  first = 0; // the number of decoded positions, so the position of the next one
  memory = /** @type {KeysAndValues[] | null} */ (null); // of the encoder's output, by layer
  cache = /** @type {KeysAndValues[]} */ ([]); // of the decoded positions, by layer
  attention = /** @type {Record<string, Float32Array[]>} */ ({}); // weights HQM by kind and layer
  vectors = /** @type {Record<string, Vectors[]>} */ ({}); // by kind and layer
  contributions = /** @type {Record<string, number>} */ ({}); // mean of |f(x)| / |x| by sublayer
  outputs = /** @type {Map<string, Float32Array> | null} */ (null); // by component, if recorded
  logits_WV = /** @type {Float32Array | null} */ (null); // of an encoder-only model, to return

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

  /** Append to the cache, and return all. @param {number} layer @param {KeysAndValues} added */
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
   * @param {string} sublayer @param {Float32Array} output_ND
   * @param {Float32Array} stream_ND the residual stream that it is added to
   */
  recordContribution(sublayer, output_ND, stream_ND) {
    const [outputs, streams] = [output_ND, stream_ND].map((x) => rowsOf(x, this.config.d_model)),
      ratios = outputs.map((row_D, n) => norm(row_D) / Math.max(norm(streams[n]), 1e-9));
    this.contributions[sublayer] = ratios.reduce((a, b) => a + b) / ratios.length;
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
