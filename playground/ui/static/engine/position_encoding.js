// Position information (models/position_encoding.py): sine waves that are added to embeddings, and
// inside self-attention a rotation of queries and keys, or a bias for each distance.
/** @import { Config, LoadPositionEncoding, PositionEncoding } from "./types.js" */

const T5_NUM_BUCKETS = 32,
  T5_MAX_DISTANCE = 128,
  LONGEST_WAVE = 10_000;
const { abs, exp, floor, fround, log, max, min } = Math;

/** Return the rates 10000^(-i/n) for i = 0, 2, …, rounded as PyTorch does. @param {number} n */
const angleRates = (n) =>
  Array.from({ length: n / 2 }, (_, i) =>
    fround(exp(fround(2 * i * fround(-log(LONGEST_WAVE) / n)))),
  );

/** Return the paper's sine waves (PD). @param {Config} config */
export function sinusoidalPositions({ nPositions, d_model: D, sinusoidal_scale }) {
  const rates = angleRates(D);
  return Float32Array.from({ length: nPositions * D }, (_, i) => {
    const angle = fround(floor(i / D) * rates[(i % D) >> 1]);
    return sinusoidal_scale * fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
  });
}

/** @type {PositionEncoding} */
const NONE = { rotate: (x_PHK) => x_PHK, bias: () => 0 };

/** Rotary embedding: rotate number i and i + K/2 of a head by position * rate_i. */
function rotaryEmbedding(/** @type {Config} */ { keySize: K }) {
  const rates = angleRates(K),
    half = K / 2;
  /** @type {PositionEncoding["rotate"]} */
  function rotate(x_PHK, nHeads, first) {
    const y_PHK = new Float32Array(x_PHK.length);
    for (let i = 0; i < x_PHK.length; i += K) {
      const position = first + floor(i / (nHeads * K));
      for (let k = 0; k < half; k++) {
        const angle = fround(position * rates[k]),
          cos = Math.cos(angle),
          sin = Math.sin(angle);
        y_PHK[i + k] = x_PHK[i + k] * cos - x_PHK[i + half + k] * sin;
        y_PHK[i + half + k] = x_PHK[i + half + k] * cos + x_PHK[i + k] * sin;
      }
    }
    return y_PHK;
  }
  return { ...NONE, rotate };
}

/** ALiBi: a distant key scores lower, with a slope for each head. @type {LoadPositionEncoding} */
function alibi({ n_heads }) {
  const n = 2 ** floor(Math.log2(n_heads)),
    slopeOf = (/** @type {number} */ h) =>
      2 ** -(h < n ? ((h + 1) * 8) / n : ((2 * (h - n) + 1) * 4) / n);
  return { ...NONE, bias: (h, distance) => -slopeOf(h) * abs(distance) };
}

/** T5: a learned number for each head and bucket of distances. @type {LoadPositionEncoding} */
function t5({ n_heads }, tensors, name, kind) {
  const table_BH = tensors[`${name}.position_encoding.relative_attention_bias`].data,
    isCausal = kind === "decoder",
    n = isCausal ? T5_NUM_BUCKETS : T5_NUM_BUCKETS / 2,
    nExact = n / 2;
  /** @type {PositionEncoding["bias"]} */
  function bias(head, distance) {
    const d = isCausal ? max(-distance, 0) : abs(distance),
      ratio = fround(log(max(d, 1) / nExact)) / fround(log(T5_MAX_DISTANCE / nExact)),
      bucket = d < nExact ? d : min(nExact + Math.trunc(fround(ratio) * (n - nExact)), n - 1),
      row = !isCausal && distance > 0 ? bucket + n : bucket;
    return table_BH[row * n_heads + head];
  }
  return { ...NONE, bias };
}

/** @type {Record<string, LoadPositionEncoding>} */
const IN_ATTENTION = { rope: rotaryEmbedding, alibi, t5 };
const BEFORE_IT = ["none", "learned", "learned-from-end", "randomized", "sinusoidal"];

/**
 * Return what acts inside attention: nothing in cross-attention. It throws a RangeError for an
 * encoding without code here.
 * @type {LoadPositionEncoding}
 */
export function loadPositionEncoding(config, tensors, name, kind) {
  const type = config.position_type,
    load = BEFORE_IT.includes(type) ? () => NONE : IN_ATTENTION[type];
  if (!load) throw new RangeError(`the browser has no position encoding ${type}`);
  return kind === "cross" ? NONE : load(config, tensors, name, kind);
}
