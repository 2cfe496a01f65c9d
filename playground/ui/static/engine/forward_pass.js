// One forward pass: what it records, and which outputs it replaces (inspection/hooks.py).

/**
 * A part of a model that can be switched off. The kinds are "encoder", "decoder" and "cross" for
 * heads, "encoder feed-forward" and "decoder feed-forward" for blocks, "source positions" and
 * "target positions". Layers and heads count from 0.
 * @typedef {object} Component
 * @property {string} kind
 * @property {number | null} layer
 * @property {number | null} head
 */

/**
 * A component and what takes the place of its output: a row (of d_model or of a head's value size)
 * for each position, or nothing for zeros.
 * @typedef {{ component: Component, output?: Float32Array }} Ablation
 */

/** @param {Component} component */
export const keyOf = ({ kind, layer, head }) => `${kind}.${layer ?? ""}.${head ?? ""}`;

export class ForwardPass {
  /** @param {import("./config.js").Config} config @param {Ablation[]} [ablations] */
  constructor(config, ablations = []) {
    this.config = config;
    this.ablations = new Map(ablations.map((each) => [keyOf(each.component), each]));
    /** Attention weights (HQM) of each layer, by kind. @type {Record<string, Float32Array[]>} */
    this.attention = {};
    /** @type {Record<string, { query_QHK: Float32Array, key_MGK: Float32Array }[]>} */
    this.vectors = {};
    /** The mean of |f(x)| / |x| of each sublayer, by name. @type {Record<string, number>} */
    this.contributions = {};
    /** The outputs of all components, by key, if they are recorded. */
    this.outputs = /** @type {Map<string, Float32Array> | null} */ (null);
    this.firstTarget = 0; // position of the first target token, in generation with a cache
  }

  /**
   * @param {string} kind @param {number} layer @param {Float32Array} weights_HQM
   * @param {Float32Array} query_QHK @param {Float32Array} key_MGK
   */
  recordAttention(kind, layer, weights_HQM, query_QHK, key_MGK) {
    (this.attention[kind] ??= [])[layer] = weights_HQM;
    (this.vectors[kind] ??= [])[layer] = { query_QHK, key_MGK };
  }

  /**
   * @param {string} name of the sublayer @param {Float32Array} output_ND
   * @param {Float32Array} stream_ND the residual stream that it is added to
   */
  recordContribution(name, output_ND, stream_ND) {
    const { d_model } = this.config;
    let sum = 0;
    for (let i = 0; i < stream_ND.length; i += d_model)
      sum += norm(output_ND, i, d_model) / Math.max(norm(stream_ND, i, d_model), 1e-9);
    this.contributions[name] = (sum * d_model) / stream_ND.length;
  }

  /**
   * Return the output (ND) of a component, or what replaces it.
   * @param {Component} component @param {Float32Array} output_ND @param {number} first position
   */
  replace(component, output_ND, first) {
    const key = keyOf(component),
      ablation = this.ablations.get(key),
      start = first * this.config.d_model;
    this.outputs?.set(key, output_ND);
    return ablation ? output_ND.map((_, i) => ablation.output?.[start + i] ?? 0) : output_ND;
  }

  /**
   * Replace the outputs of heads, in place, before their projection.
   * @param {string} kind @param {number} layer @param {Float32Array} output_QHV
   * @param {number} first position of the queries
   */
  replaceHeads(kind, layer, output_QHV, first) {
    const { n_heads: H, valueSize: V } = this.config,
      nQueries = output_QHV.length / (H * V);
    for (let head = 0; head < H; head++) {
      const key = keyOf({ kind, layer, head }),
        ablation = this.ablations.get(key);
      if (this.outputs)
        this.outputs.set(
          key,
          Float32Array.from({ length: nQueries * V }, (_, i) => {
            const query = Math.floor(i / V);
            return output_QHV[(query * H + head) * V + (i % V)];
          }),
        );
      if (!ablation) continue;
      for (let q = 0; q < nQueries; q++)
        for (let v = 0; v < V; v++)
          output_QHV[(q * H + head) * V + v] = ablation.output?.[(first + q) * V + v] ?? 0;
    }
  }
}

/** @param {Float32Array} x @param {number} start @param {number} length */
function norm(x, start, length) {
  let sum = 0;
  for (let i = start; i < start + length; i++) sum += x[i] ** 2;
  return Math.sqrt(sum);
}
