// The parts of a model that can be switched off, by name: heads, feed-forward blocks, and position
// vectors that are added to embeddings.
/** @import { Component } from "./types.js" */

/** @param {Component} component */
export const keyOf = ({ kind, layer, head }) => `${kind}.${layer ?? ""}.${head ?? ""}`;

/** @param {Component[]} parts @param {Component} part */
export const includes = (parts, part) => parts.some((each) => keyOf(each) === keyOf(part));

/**
 * Switch parts off, or on if all of them are off. Return what is off then.
 * @param {Component[]} off @param {Component[]} parts
 */
export function toggle(off, parts) {
  const others = off.filter((each) => !includes(parts, each));
  return parts.every((part) => includes(off, part)) ? others : [...others, ...parts];
}

/** Write "cross.2.1,encoder feed-forward.1,source positions". @param {Component[]} parts */
export const formatParts = (parts) =>
  parts
    .map(({ kind, layer, head }) => [kind, ...[layer, head].flatMap((n) => n ?? [])])
    .map(([kind, ...numbers]) => [kind, ...numbers.map((n) => Number(n) + 1)].join("."))
    .join();

/** @param {string} text of formatParts @returns {Component[]} */
export const parseParts = (text) =>
  text.split(",").map((part) => {
    const [kind, ...numbers] = part.split("."),
      [layer = null, head = null] = numbers.map((number) => Number(number) - 1);
    return { kind, layer, head };
  });

/**
 * Return the name of a part, with layer and head if there are several: "cross-attention 2.1".
 * @param {Component} part @param {boolean} isSingle whether the model has one stack
 * @param {boolean} [isOnly] whether the model has no other part of this kind
 */
export function nameOf({ kind, layer, head }, isSingle, isOnly = false) {
  const names = /** @type {Record<string, string>} */ ({
      encoder: isSingle ? "self-attention" : "encoder self-attention",
      decoder: "masked self-attention",
      cross: "cross-attention",
      "source positions": "input positions",
      "target positions": isSingle ? "positions" : "output positions",
    }),
    number = layer === null ? "" : ` ${layer + 1}${head === null ? "" : `.${head + 1}`}`;
  return (names[kind] ?? kind) + (isOnly ? "" : number);
}

/**
 * Measure how much each part matters: the share of right tokens that become wrong without it alone.
 * @param {Component[]} parts
 * @param {(off: Component[]) => Promise<number | null>} countTokens right ones; null ends this
 * @param {(shares: Map<string, number>) => void} onShares receives the shares so far, by key
 */
export async function measureImportance(parts, countTokens, onShares) {
  const shares = /** @type {Map<string, number>} */ (new Map()),
    whole = await countTokens([]);
  for (const part of whole ? parts : []) {
    const right = await countTokens([part]);
    if (right === null) return;
    shares.set(keyOf(part), Math.max(0, 1 - right / Number(whole)));
    onShares(new Map(shares));
  }
}

/** Return the 95 % interval of a share (Wilson 1927). @param {number} right @param {number} n */
export function shareInterval(right, n) {
  const z = 1.96,
    share = right / n,
    center = (share + (z * z) / (2 * n)) / (1 + (z * z) / n),
    half = (z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n));
  return [Math.max(0, center - half), Math.min(1, center + half)];
}
