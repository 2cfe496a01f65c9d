// The parts without attention (models/layers.py, feed_forward.py). Sums are computed in double
// precision. There is one sequence at a time, so no padding. Letters: E outputs, F d_ff.
/** @import { Load, Module, Tensor, Tensors } from "./types.js" */

const NORM_EPS = 1e-5;
const { exp, max, min, sqrt } = Math;

/** Return the weights of a name. It throws a RangeError if there are none. */
export function requireTensor(/** @type {Tensors} */ tensors, /** @type {string} */ name) {
  const tensor = tensors[name];
  if (!tensor) throw new RangeError(`the checkpoint has no weights ${name}`);
  return tensor;
}

/**
 * Compute x W^T + b. Two rows of x and four outputs share their loads; the last ones may repeat.
 * @param {Float32Array} x_ND @param {Tensor} weight @param {Tensor} [bias] @returns {Float32Array}
 */
export function linear(x_ND, { shape: [E, D], data: w_ED }, bias) {
  const bias_E = bias?.data,
    N = x_ND.length / D,
    y_NE = new Float32Array(N * E);
  for (let e = 0; e < E; e += 4) {
    const [e1, e2, e3] = [min(e + 1, E - 1), min(e + 2, E - 1), min(e + 3, E - 1)],
      [v0, v1, v2, v3] = [e * D, e1 * D, e2 * D, e3 * D];
    for (let n = 0; n < N; n += 2) {
      const m = min(n + 1, N - 1),
        x0 = n * D,
        x1 = m * D,
        y = n * E,
        z = m * E;
      let y0 = 0,
        y1 = 0,
        y2 = 0,
        y3 = 0,
        z0 = 0,
        z1 = 0,
        z2 = 0,
        z3 = 0;
      for (let d = 0; d < D; d++) {
        const a = x_ND[x0 + d],
          b = x_ND[x1 + d],
          w0 = w_ED[v0 + d],
          w1 = w_ED[v1 + d],
          w2 = w_ED[v2 + d],
          w3 = w_ED[v3 + d];
        y0 += a * w0;
        y1 += a * w1;
        y2 += a * w2;
        y3 += a * w3;
        z0 += b * w0;
        z1 += b * w1;
        z2 += b * w2;
        z3 += b * w3;
      }
      y_NE[y + e] = y0 + (bias_E?.[e] ?? 0);
      y_NE[y + e1] = y1 + (bias_E?.[e1] ?? 0);
      y_NE[y + e2] = y2 + (bias_E?.[e2] ?? 0);
      y_NE[y + e3] = y3 + (bias_E?.[e3] ?? 0);
      y_NE[z + e] = z0 + (bias_E?.[e] ?? 0);
      y_NE[z + e1] = z1 + (bias_E?.[e1] ?? 0);
      y_NE[z + e2] = z2 + (bias_E?.[e2] ?? 0);
      y_NE[z + e3] = z3 + (bias_E?.[e3] ?? 0);
    }
  }
  return y_NE;
}

/** @param {Tensors} tensors @param {string} name @returns {Module} */
export function loadLinear(tensors, name) {
  const weight = requireTensor(tensors, `${name}.weight`),
    bias = tensors[`${name}.bias`];
  return (x_ND) => linear(x_ND, weight, bias);
}

/** Return layer norm; RMSNorm, which subtracts no mean; or no norm. @type {Load} */
export function loadNorm(config, tensors, name) {
  const weight_D = tensors[`${name}.weight`]?.data,
    bias_D = tensors[`${name}.bias`]?.data,
    subtractsMean = config.norm_type === "layer",
    D = config.d_model;
  if (!weight_D) return (x_ND) => x_ND;
  return (x_ND) => {
    const y_ND = new Float32Array(x_ND.length);
    for (let i = 0; i < x_ND.length; i += D) {
      let mean = 0,
        squares = 0;
      if (subtractsMean) for (let d = 0; d < D; d++) mean += x_ND[i + d] / D;
      for (let d = 0; d < D; d++) squares += (x_ND[i + d] - mean) ** 2;
      const scale = 1 / sqrt(squares / D + NORM_EPS);
      for (let d = 0; d < D; d++)
        y_ND[i + d] = (x_ND[i + d] - mean) * scale * weight_D[d] + (bias_D?.[d] ?? 0);
    }
    return y_ND;
  };
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

const ACTIVATIONS = /** @type {Record<string, (x: number) => number>} */ ({
  relu: (x) => max(0, x),
  gelu: (x) => (x / 2) * (1 + erf(x * Math.SQRT1_2)),
  swiglu: (x) => x / (1 + exp(-x)), // of the gate
});

/** Return D → F → D with an activation between; SwiGLU multiplies by a gate. @type {Load} */
export function loadFeedForward({ activation }, tensors, name) {
  const activate = ACTIVATIONS[activation],
    up_proj = loadLinear(tensors, `${name}.up_proj`),
    down_proj = loadLinear(tensors, `${name}.down_proj`),
    gate_proj = activation === "swiglu" ? loadLinear(tensors, `${name}.gate_proj`) : null;
  if (!gate_proj) return (x_ND) => down_proj(up_proj(x_ND).map(activate));
  return (x_ND) => {
    const gate_NF = gate_proj(x_ND);
    return down_proj(up_proj(x_ND).map((value, i) => value * activate(gate_NF[i])));
  };
}

/** Return the rows of a matrix. @param {Float32Array} x_NV @param {number} width */
export const rowsOf = (x_NV, width) =>
  Array.from({ length: x_NV.length / width }, (_, n) => x_NV.subarray(n * width, (n + 1) * width));

/** Turn scores into probabilities, in place. @param {Float32Array} x */
export function softmax(x) {
  let largest = -Infinity,
    sum = 0;
  for (let i = 0; i < x.length; i++) largest = max(largest, x[i]);
  for (let i = 0; i < x.length; i++) sum += x[i] = exp(x[i] - largest);
  for (let i = 0; i < x.length; i++) x[i] /= sum;
  return x;
}
