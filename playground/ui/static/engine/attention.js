// Attention of several heads (models/attention.py).
// Letters: Q queries, M keys, H heads, G heads of keys and values, K size of a head's queries and
// keys, V size of a head's values, D d_model.
import { loadLinear, softmax } from "./linear.js";
import { loadPositionEncoding } from "./position_encoding.js";
/** @import { ForwardPass } from "./forward_pass.js" */
/** @import { Config } from "./model.js" */
/** @import { Tensors } from "./safetensors.js" */
/** @typedef {{ key_MGK: Float32Array, value_MGV: Float32Array }} KeysAndValues */

/**
 * Compute softmax(Q K^T / sqrt(d_k)) V for every head (Vaswani et al. 2017, equation 1).
 * @param {Float32Array} query_QHK @param {KeysAndValues} keysAndValues @param {Config} config
 * @param {(query: number) => number} countVisible how many of the first keys a query may attend to
 * @param {(head: number, query: number, key: number) => number} bias of the scores
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
        weights_HQM[row + m] = score / Math.sqrt(K) + bias(h, q, m);
      }
      softmax(weights_HQM.subarray(row, row + n));
      for (let m = 0; m < n; m++) {
        const weight = weights_HQM[row + m],
          value = (m * G + g) * V;
        for (let v = 0; v < V; v++) output_QHV[to + v] += weight * value_MGV[value + v];
      }
    }
  }
  return { output_QHV, weights_HQM };
}

/** Attention heads in parallel, each with its own projections. */
export class MultiHeadAttention {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} name
   * @param {string} kind "encoder", "decoder" or "cross" @param {number} layer
   */
  constructor(config, tensors, name, kind, layer) {
    this.config = config;
    this.kind = kind;
    this.layer = layer;
    this.position = loadPositionEncoding(config, tensors, name, kind);
    this.q_proj = loadLinear(tensors, `${name}.q_proj`);
    this.k_proj = loadLinear(tensors, `${name}.k_proj`);
    this.v_proj = loadLinear(tensors, `${name}.v_proj`);
    this.out_proj = loadLinear(tensors, `${name}.out_proj`);
  }

  /** @param {Float32Array} x_MD @param {number} first position @returns {KeysAndValues} */
  projectKeysAndValues(x_MD, first) {
    const key_MGK = this.position.rotate(this.k_proj(x_MD), this.config.n_kv_heads, first);
    return { key_MGK, value_MGV: this.v_proj(x_MD) };
  }

  /** @param {Float32Array} x_QD @param {KeysAndValues} keysAndValues @param {ForwardPass} pass */
  forward(x_QD, keysAndValues, pass) {
    const { config, kind, layer, position } = this,
      { n_heads: H, valueSize: V } = config,
      { source, first } = pass,
      query_QHK = position.rotate(this.q_proj(x_QD), H, first),
      { output_QHV, weights_HQM } = scaledDotProductAttention(
        query_QHK,
        keysAndValues,
        config,
        kind === "decoder" ? (query) => first + query + 1 : () => source.length,
        (head, query, key) => position.bias(head, key - query - first),
      );
    (pass.attention[kind] ??= [])[layer] = weights_HQM;
    (pass.vectors[kind] ??= [])[layer] = { query_QHK, key_MGK: keysAndValues.key_MGK };
    for (let head = 0; head < H; head++)
      pass.replace({ kind, layer, head }, output_QHV, H * V, head * V, V);
    return this.out_proj(output_QHV);
  }
}
