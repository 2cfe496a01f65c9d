// Attention weights as the server packs them.

/**
 * Decode weights: thousandths in two bytes each, in base64, head after head.
 * @param {{ weights: string, layers: number, heads: number, rows: string[], columns: string[] }}
 *   packed
 * @returns {Float32Array[][][]} rows of weights by layer and head
 */
export function unpackWeights({ weights, layers, heads, rows, columns }) {
  const bytes = Uint8Array.from(atob(weights), (c) => c.charCodeAt(0)),
    view = new DataView(bytes.buffer),
    numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = view.getInt16(2 * i, true) / 1000;
  const readRow = (/** @type {number} */ at) =>
    numbers.subarray(at * columns.length, (at + 1) * columns.length);
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) =>
      rows.map((_, row) => readRow((layer * heads + head) * rows.length + row)),
    ),
  );
}
