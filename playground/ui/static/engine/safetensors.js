// Read the weights of a checkpoint: a safetensors file with float32 or float16 numbers.
/** @import { Tensors } from "./types.js" */

/** Decode float16: a sign, 5 bits of exponent, 10 of fraction. @param {number} bits */
export function decodeFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** @type {Record<string, { size: number, convert: (bytes: ArrayBuffer) => Float32Array }>} */
const TYPES = {
  F32: { size: 4, convert: (bytes) => new Float32Array(bytes) },
  F16: { size: 2, convert: (bytes) => Float32Array.from(new Uint16Array(bytes), decodeFloat16) },
};
const LENGTH_BYTES = 8; // of the number that gives the length of the header

/**
 * Read a safetensors file: the length of the header, the header in JSON, little-endian numbers. It
 * throws a RangeError for a file that is incomplete or has numbers that are not finite.
 * @param {ArrayBuffer} buffer @returns {Tensors}
 */
export function readSafetensors(buffer) {
  const tensors = /** @type {Tensors} */ ({});
  let header, start;
  try {
    start = LENGTH_BYTES + Number(new DataView(buffer).getBigUint64(0, true));
    const text = new TextDecoder().decode(buffer.slice(LENGTH_BYTES, start));
    header = Object(JSON.parse(text));
  } catch {
    throw new RangeError("this is not a complete safetensors file");
  }
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const { dtype, shape, data_offsets } = entry ?? {},
      type = TYPES[dtype];
    if (!type) throw new RangeError(`the weights ${name} have the type ${dtype}`);
    const [from, to] = data_offsets ?? [],
      isShape = Array.isArray(shape) && shape.every((n) => Number.isInteger(n) && n >= 0),
      count = isShape ? shape.reduce((product, n) => product * n, 1) : NaN;
    if (!(from >= 0 && to - from === count * type.size && start + to <= buffer.byteLength))
      throw new RangeError(`the weights ${name} do not fit the file`);
    const data = type.convert(buffer.slice(start + from, start + to));
    if (!data.every(Number.isFinite)) throw new RangeError(`the weights ${name} are not finite`);
    tensors[name] = { shape, data };
  }
  return tensors;
}
