// Attention of several heads, each with its own projections (models/attention.py).
import { loadLinear, softmax } from "./linear.js";
import { loadPositionEncoding } from "./position_encoding.js";
/** @import { ForwardPass } from "./forward_pass.js" */
/** @import { Config, KeysAndValues, Tensors } from "./types.js" */

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

  /**
   * Compute softmax(Q K^T / sqrt(d_k)) V for every head (Vaswani et al. 2017, equation 1).
   * @param {Float32Array} x_QD @param {KeysAndValues} keysAndValues @param {ForwardPass} pass
   */
  forward(x_QD, { key_MGK, value_MGV }, pass) {
    const { kind, layer, position } = this,
      { n_heads: H, n_kv_heads: G, keySize: K, valueSize: V } = this.config,
      { source, first } = pass,
      query_QHK = position.rotate(this.q_proj(x_QD), H, first),
      Q = query_QHK.length / (H * K),
      M = key_MGK.length / (G * K),
      output_QHV = new Float32Array(Q * H * V),
      weights_HQM = new Float32Array(H * Q * M);
    for (let h = 0; h < H; h++) {
      const g = Math.floor((h * G) / H); // neighboring heads share keys and values
      for (let q = 0; q < Q; q++) {
        const n = kind === "decoder" ? first + q + 1 : source.length, // the keys in sight
          row = (h * Q + q) * M,
          from = (q * H + h) * K,
          to = (q * H + h) * V;
        for (let m = 0; m < n; m++) {
          const key = (m * G + g) * K;
          let score = 0;
          for (let k = 0; k < K; k++) score += query_QHK[from + k] * key_MGK[key + k];
          weights_HQM[row + m] = score / Math.sqrt(K) + position.bias(h, m - q - first);
        }
        softmax(weights_HQM.subarray(row, row + n));
        for (let m = 0; m < n; m++) {
          const weight = weights_HQM[row + m],
            value = (m * G + g) * V;
          for (let v = 0; v < V; v++) output_QHV[to + v] += weight * value_MGV[value + v];
        }
      }
      pass.replace({ kind, layer, head: h }, output_QHV, H * V, h * V, V);
    }
    (pass.attention[kind] ??= [])[layer] = weights_HQM;
    (pass.vectors[kind] ??= [])[layer] = { query_QHK, key_MGK };
    return this.out_proj(output_QHV);
  }
}
