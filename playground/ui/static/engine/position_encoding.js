// Position information (models/position_encoding.py): sine waves that are added to embeddings, and
// inside self-attention a rotation of queries and keys, or a bias for each distance.
// Letters: P positions, D d_model, H heads, K size of a head's keys.

/** @typedef {import("./config.js").Config} Config */
/** @typedef {import("./safetensors.js").Tensors} Tensors */

const T5_NUM_BUCKETS = 32,
  T5_MAX_DISTANCE = 128,
  LONGEST_WAVE = 10_000;
const { abs, exp, floor, fround, log, max, min } = Math;

/** Return the rates 10000^(-i/n) for i = 0, 2, …, rounded as PyTorch does. @param {number} n */
const angleRates = (n) =>
  Array.from({ length: n / 2 }, (_, i) =>
    fround(exp(fround(2 * i * fround(-log(LONGEST_WAVE) / n)))),
  );

/**
 * Return the paper's sine waves (PD).
 * @param {number} n positions @param {number} width d_model @param {number} scale
 */
export function sinusoidalPositions(n, width, scale) {
  const rates = angleRates(width);
  return Float32Array.from({ length: n * width }, (_, i) => {
    const angle = fround(floor(i / width) * rates[(i % width) >> 1]);
    return scale * fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
  });
}

/** Rotary position embedding: rotates number i and i + K/2 of a head by position * rate_i. */
class RotaryEmbedding {
  /** @param {Config} config */
  constructor({ keySize }) {
    this.keySize = keySize;
    this.rates = angleRates(keySize);
  }

  /** @param {Float32Array} x_PHK @param {number} n_heads @param {number} firstPosition */
  rotate(x_PHK, n_heads, firstPosition) {
    const half = this.keySize / 2,
      y_PHK = new Float32Array(x_PHK.length);
    for (let i = 0; i < x_PHK.length; i += this.keySize) {
      const position = firstPosition + floor(i / (n_heads * this.keySize));
      for (let k = 0; k < half; k++) {
        const angle = fround(position * this.rates[k]),
          cos = Math.cos(angle),
          sin = Math.sin(angle);
        y_PHK[i + k] = x_PHK[i + k] * cos - x_PHK[i + half + k] * sin;
        y_PHK[i + half + k] = x_PHK[i + half + k] * cos + x_PHK[i + k] * sin;
      }
    }
    return y_PHK;
  }
}

/** ALiBi: the more distant the key, the lower its score, with a slope for each head. */
class ALiBi {
  /** @param {Config} config */
  constructor({ n_heads }) {
    const n = 2 ** floor(Math.log2(n_heads));
    this.slope_H = Array.from(
      { length: n_heads },
      (_, h) => 2 ** -(h < n ? ((h + 1) * 8) / n : ((2 * (h - n) + 1) * 4) / n),
    );
  }

  /** @param {number} head @param {number} distance key position minus query position */
  bias(head, distance) {
    return -this.slope_H[head] * abs(distance);
  }
}

/** T5: a learned number for each head and bucket of distances. */
class T5RelativePositionBias {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} name of the attention
   * @param {boolean} isCausal
   */
  constructor({ n_heads }, tensors, name, isCausal) {
    this.table_BH = tensors[`${name}.position_encoding.relative_attention_bias`].data;
    this.n_heads = n_heads;
    this.isCausal = isCausal;
  }

  /** @param {number} head @param {number} distance key position minus query position */
  bias(head, distance) {
    return this.table_BH[this.bucket(distance) * this.n_heads + head];
  }

  /** @param {number} distance */
  bucket(distance) {
    const n = this.isCausal ? T5_NUM_BUCKETS : T5_NUM_BUCKETS / 2,
      nExact = n / 2,
      d = this.isCausal ? max(-distance, 0) : abs(distance),
      ratio = fround(log(max(d, 1) / nExact)) / fround(log(T5_MAX_DISTANCE / nExact)),
      bucket = d < nExact ? d : min(nExact + Math.trunc(fround(ratio) * (n - nExact)), n - 1);
    return !this.isCausal && distance > 0 ? bucket + n : bucket;
  }
}

/** By `position_type`; null where vectors are added to the embeddings, or there is no position. */
const POSITION_ENCODINGS = {
  none: null,
  learned: null,
  "learned-from-end": null,
  randomized: null,
  sinusoidal: null,
  rope: RotaryEmbedding,
  alibi: ALiBi,
  t5: T5RelativePositionBias,
};

/**
 * Return what acts inside self-attention. It throws a RangeError for an encoding without code here.
 * @param {Config} config @param {Tensors} tensors @param {string} name of the attention
 * @param {boolean} isCausal
 */
export function positionEncoding(config, tensors, name, isCausal) {
  const Encoding = POSITION_ENCODINGS[config.position_type];
  if (Encoding === undefined)
    throw new RangeError(`the browser has no position encoding ${config.position_type}`);
  return Encoding && new Encoding(config, tensors, name, isCausal);
}
