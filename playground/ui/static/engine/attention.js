// Attention of several heads (models/attention.py), and the keys and values of decoded positions.
// Letters: Q queries, M keys, H heads, G heads of keys and values, K size of a head's queries and
// keys, V size of a head's values, D d_model.
import { Linear } from "./linear.js";

/** @typedef {import("./config.js").Config} Config */
/** @typedef {import("./forward_pass.js").ForwardPass} ForwardPass */
/** @typedef {import("./safetensors.js").Tensors} Tensors */
/** @typedef {{ key_MGK: Float32Array, value_MGV: Float32Array }} KeysAndValues */

/**
 * Compute softmax(Q K^T / sqrt(d_k)) V for every head (Vaswani et al. 2017, equation 1).
 * @param {Float32Array} query_QHK @param {KeysAndValues} keysAndValues @param {Config} config
 * @param {(query: number) => number} countVisible how many of the first keys a query may attend to
 * @param {(head: number, query: number, key: number) => number} [bias] of the scores
 */
export function scaledDotProductAttention(query_QHK, keysAndValues, config, countVisible, bias) {
  const { n_heads: H, n_kv_heads: G, keySize: K, valueSize: V } = config,
    { key_MGK, value_MGV } = keysAndValues,
    Q = query_QHK.length / (H * K),
    M = key_MGK.length / (G * K),
    output_QHV = new Float32Array(Q * H * V),
    weights_HQM = new Float32Array(H * Q * M);
  for (let h = 0; h < H; h++) {
    const g = Math.floor((h * G) / H); // neighboring heads share keys and values
    for (let q = 0; q < Q; q++) {
      const n = countVisible(q),
        row = (h * Q + q) * M,
        from = (q * H + h) * K,
        to = (q * H + h) * V;
      for (let m = 0; m < n; m++) {
        const key = (m * G + g) * K;
        let score = 0;
        for (let k = 0; k < K; k++) score += query_QHK[from + k] * key_MGK[key + k];
        weights_HQM[row + m] = score / Math.sqrt(K) + (bias ? bias(h, q, m) : 0);
      }
      softmaxInPlace(weights_HQM, row, n);
      for (let m = 0; m < n; m++) {
        const weight = weights_HQM[row + m],
          value = (m * G + g) * V;
        for (let v = 0; v < V; v++) output_QHV[to + v] += weight * value_MGV[value + v];
      }
    }
  }
  return { output_QHV, weights_HQM };
}

/** @param {Float32Array} x @param {number} start @param {number} length */
function softmaxInPlace(x, start, length) {
  let largest = -Infinity,
    sum = 0;
  for (let i = start; i < start + length; i++) largest = Math.max(largest, x[i]);
  for (let i = start; i < start + length; i++) sum += x[i] = Math.exp(x[i] - largest);
  for (let i = start; i < start + length; i++) x[i] /= sum;
}

export class MultiHeadAttention {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} name
   * @param {any} [position] encoding that acts on the scores
   */
  constructor(config, tensors, name, position) {
    this.config = config;
    this.position = position;
    this.q_proj = Linear.load(tensors, `${name}.q_proj`);
    this.k_proj = Linear.load(tensors, `${name}.k_proj`);
    this.v_proj = Linear.load(tensors, `${name}.v_proj`);
    this.out_proj = Linear.load(tensors, `${name}.out_proj`);
  }

  /** Return keys and values of positions. @param {Float32Array} x_MD @returns {KeysAndValues} */
  projectKeysAndValues(x_MD, firstPosition = 0) {
    const key_MGK = this.k_proj.forward(x_MD),
      { n_kv_heads } = this.config;
    return {
      key_MGK: this.position?.rotate?.(key_MGK, n_kv_heads, firstPosition) ?? key_MGK,
      value_MGV: this.v_proj.forward(x_MD),
    };
  }

  /**
   * Return the output (QD) of queries, the last of the positions that have keys.
   * @param {Float32Array} x_QD @param {KeysAndValues} keysAndValues
   * @param {(query: number) => number} countVisible @param {ForwardPass} pass @param {string} kind
   * @param {number} layer
   */
  forward(x_QD, keysAndValues, countVisible, pass, kind, layer) {
    const { n_heads, n_kv_heads, keySize, d_model } = this.config,
      nKeys = keysAndValues.key_MGK.length / (n_kv_heads * keySize),
      first = nKeys - x_QD.length / d_model,
      projected = this.q_proj.forward(x_QD),
      query_QHK = this.position?.rotate?.(projected, n_heads, first) ?? projected,
      bias =
        this.position?.bias &&
        ((/** @type {number} */ h, /** @type {number} */ q, /** @type {number} */ m) =>
          this.position.bias(h, m - q - first)),
      { output_QHV, weights_HQM } = scaledDotProductAttention(
        query_QHK,
        keysAndValues,
        this.config,
        countVisible,
        bias,
      );
    pass.recordAttention(kind, layer, weights_HQM, query_QHK, keysAndValues.key_MGK);
    pass.replaceHeads(kind, layer, output_QHV, kind === "cross" ? pass.firstTarget : first);
    return this.out_proj.forward(output_QHV);
  }
}

/** Keys and values of one layer, for the positions decoded so far. */
export class KeyValueCache {
  /** @param {Config} config @param {number} nPositions */
  constructor({ n_kv_heads, keySize, valueSize }, nPositions) {
    this.keyWidth = n_kv_heads * keySize;
    this.valueWidth = n_kv_heads * valueSize;
    this.key_MGK = new Float32Array(nPositions * this.keyWidth);
    this.value_MGV = new Float32Array(nPositions * this.valueWidth);
    this.length = 0; // positions
  }

  /** Append new positions; return all so far. @param {KeysAndValues} added */
  append({ key_MGK, value_MGV }) {
    this.key_MGK.set(key_MGK, this.length * this.keyWidth);
    this.value_MGV.set(value_MGV, this.length * this.valueWidth);
    this.length += key_MGK.length / this.keyWidth;
    return {
      key_MGK: this.key_MGK.subarray(0, this.length * this.keyWidth),
      value_MGV: this.value_MGV.subarray(0, this.length * this.valueWidth),
    };
  }
}
