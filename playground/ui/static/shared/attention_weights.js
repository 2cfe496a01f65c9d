// Attention weights as the server packs them.

/**
 * Decode weights: thousandths in two bytes each, in base64, head after head.
 * @param {{ weights: string, layers: number, heads: number }} packed
 * @returns {Int16Array[][]} thousandths by layer and head, row by row
 */
export function unpackWeights({ weights, layers, heads }) {
  const bytes = Uint8Array.from(atob(weights), (c) => c.charCodeAt(0)),
    all = new Int16Array(bytes.buffer),
    size = all.length / (layers * heads);
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) =>
      all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size),
    ),
  );
}

/** Return rows from 0 to 1. @param {ArrayLike<number>} thousandths @param {number} columns */
export const toRows = (thousandths, columns) =>
  Array.from({ length: thousandths.length / columns }, (_, row) =>
    Array.from({ length: columns }, (_, column) => thousandths[row * columns + column] / 1000),
  );
