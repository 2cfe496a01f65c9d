// The role of a head on one input, as inspection/head_patterns.py measures it on many.

const MIN_CLARITY = 0.5; // of a role: 0 for uniform attention, 1 for all of it on the pattern
const MAX_CHANCE = 0.5; // of uniform attention; from here on, a pattern is no information

/**
 * The key that a query reads; `end` is the place of EOS.
 * @type {Record<string, [(query: number, end: number) => number, string]>}
 */
const PATTERNS = {
  self: [(query) => query, "its own position"],
  mirror: [(query, end) => end - 1 - query, "the mirrored position"],
  previous: [(query) => query - 1, "the previous position"],
  next: [(query) => query + 1, "the next position"],
  first: [() => 0, "the first token"],
  last: [(_, end) => end, "EOS, the end of the input"],
};

/**
 * Return the role of a head, and which share of its weights it describes; null without a clear one.
 * @param {ArrayLike<number>} weights thousandths, row by row
 * @param {number} rows
 * @param {number} columns
 * @param {boolean} isCausal
 */
export function findRole(weights, rows, columns, isCausal) {
  let best = /** @type {{ name: string, text: string, share: number } | null} */ (null),
    bestClarity = MIN_CLARITY;
  for (const [name, [keyOf, text]] of Object.entries(PATTERNS)) {
    let share = 0,
      chance = 0,
      count = 0;
    for (let query = isCausal ? 1 : 0; query < rows; query++) {
      const nKeys = isCausal ? query + 1 : columns,
        key = keyOf(query, isCausal ? columns : columns - 1);
      if (key < 0 || key >= nKeys) continue;
      share += weights[query * columns + key] / 1000;
      chance += 1 / nKeys;
      count += 1;
    }
    const clarity = (share - chance) / (count - chance);
    if (chance / count < MAX_CHANCE && clarity >= bestClarity) {
      bestClarity = clarity;
      best = { name, text, share: share / count };
    }
  }
  return best;
}
