// The layers without attention (models/layers.py, feed_forward.py). A tensor is a Float32Array, row
// by row; sums are computed in double precision. There is one sequence at a time: no batch, no
// padding. Letters: N rows, D d_model, E outputs, F d_ff.

/** @typedef {import("./config.js").Config} Config */
/** @typedef {import("./safetensors.js").Tensors} Tensors */

const NORM_EPS = 1e-5;
const { exp, max, min, sqrt } = Math;

/** Return the weights of a name. It throws a RangeError if there are none. */
export function requireTensor(/** @type {Tensors} */ tensors, /** @type {string} */ name) {
  const tensor = tensors[name];
  if (!tensor) throw new RangeError(`the checkpoint has no weights ${name}`);
  return tensor;
}

/**
 * Return x W^T + b (NE). Two rows times four columns share each load; the last ones may repeat.
 * @param {Float32Array} x_ND @param {import("./safetensors.js").Tensor} weight
 * @param {Float32Array} [bias_E]
 */
function multiply(x_ND, { shape: [E, D], data: w_ED }, bias_E) {
  const N = x_ND.length / D,
    y_NE = new Float32Array(N * E);
  for (let e = 0; e < E; e += 4) {
    const [e1, e2, e3] = [min(e + 1, E - 1), min(e + 2, E - 1), min(e + 3, E - 1)],
      [w0, w1, w2, w3] = [e * D, e1 * D, e2 * D, e3 * D];
    for (let n = 0; n < N; n += 2) {
      const n1 = min(n + 1, N - 1),
        [x0, x1] = [n * D, n1 * D];
      let [a0, a1, a2, a3] = bias_E
          ? [bias_E[e], bias_E[e1], bias_E[e2], bias_E[e3]]
          : [0, 0, 0, 0],
        [b0, b1, b2, b3] = [a0, a1, a2, a3];
      for (let d = 0; d < D; d++) {
        const a = x_ND[x0 + d],
          b = x_ND[x1 + d];
        a0 += a * w_ED[w0 + d];
        a1 += a * w_ED[w1 + d];
        a2 += a * w_ED[w2 + d];
        a3 += a * w_ED[w3 + d];
        b0 += b * w_ED[w0 + d];
        b1 += b * w_ED[w1 + d];
        b2 += b * w_ED[w2 + d];
        b3 += b * w_ED[w3 + d];
      }
      y_NE[n * E + e] = a0;
      y_NE[n * E + e1] = a1;
      y_NE[n * E + e2] = a2;
      y_NE[n * E + e3] = a3;
      y_NE[n1 * E + e] = b0;
      y_NE[n1 * E + e1] = b1;
      y_NE[n1 * E + e2] = b2;
      y_NE[n1 * E + e3] = b3;
    }
  }
  return y_NE;
}

export class Linear {
  /** @param {import("./safetensors.js").Tensor} weight @param {Float32Array} [bias] */
  constructor(weight, bias) {
    this.weight = weight;
    this.bias = bias;
  }

  /** @param {Tensors} tensors @param {string} name */
  static load(tensors, name) {
    return new Linear(requireTensor(tensors, `${name}.weight`), tensors[`${name}.bias`]?.data);
  }

  /** @param {Float32Array} x_ND */
  forward(x_ND) {
    return multiply(x_ND, this.weight, this.bias);
  }
}

/** Layer norm; RMSNorm, which subtracts no mean; or no norm. */
export class Norm {
  /** @param {Config} config @param {Tensors} tensors @param {string} name */
  constructor(config, tensors, name) {
    this.weight = tensors[`${name}.weight`]?.data;
    this.bias = tensors[`${name}.bias`]?.data;
    this.subtractsMean = config.norm_type === "layer";
  }

  /** @param {Float32Array} x_ND */
  forward(x_ND) {
    if (!this.weight) return x_ND;
    const D = this.weight.length,
      y_ND = new Float32Array(x_ND.length);
    for (let i = 0; i < x_ND.length; i += D) {
      let mean = 0,
        squares = 0;
      if (this.subtractsMean) for (let d = 0; d < D; d++) mean += x_ND[i + d] / D;
      for (let d = 0; d < D; d++) squares += (x_ND[i + d] - mean) ** 2;
      const scale = 1 / sqrt(squares / D + NORM_EPS);
      for (let d = 0; d < D; d++)
        y_ND[i + d] = (x_ND[i + d] - mean) * scale * this.weight[d] + (this.bias?.[d] ?? 0);
    }
    return y_ND;
  }
}

// Coefficients of the complementary error function (Press et al. 1992, section 6.2): its relative
// error is below 1.2e-7.
const ERFC = [
  0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196,
  1.00002368, -1.26551223,
];

/** @param {number} x */
function erf(x) {
  const t = 1 / (1 + Math.abs(x) / 2),
    complement = t * exp(ERFC.reduce((sum, next) => sum * t + next) - x * x);
  return x < 0 ? complement - 1 : 1 - complement;
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = {
  relu: (x) => max(0, x),
  gelu: (x) => (x / 2) * (1 + erf(x * Math.SQRT1_2)),
  swiglu: (x) => x / (1 + exp(-x)), // of the gate
};

/** D → F → D with an activation between; SwiGLU multiplies by a gate. */
export class FeedForward {
  /** @param {Config} config @param {Tensors} tensors @param {string} name */
  constructor(config, tensors, name) {
    this.activation = ACTIVATIONS[config.activation];
    this.up = Linear.load(tensors, `${name}.up_proj`);
    this.down = Linear.load(tensors, `${name}.down_proj`);
    this.gate = config.activation === "swiglu" ? Linear.load(tensors, `${name}.gate_proj`) : null;
  }

  /** @param {Float32Array} x_ND */
  forward(x_ND) {
    const up_NF = this.up.forward(x_ND),
      gate_NF = this.gate?.forward(x_ND),
      hidden_NF = gate_NF
        ? up_NF.map((value, i) => value * this.activation(gate_NF[i]))
        : up_NF.map(this.activation);
    return this.down.forward(hidden_NF);
  }
}
