// The rules of the built-in tasks (tasks/rules.py, arithmetic.py), but for `random`. A symbol is
// its number in the alphabet, which begins with the n digits that a task counts with.

/** @typedef {(source: number[], n: number) => number[]} Rule */

const sum = (/** @type {number[]} */ values) => values.reduce((a, b) => a + b, 0);

/** @type {Rule} */
function addition(source, n) {
  const plus = source.indexOf(n),
    [first, second] = [source.slice(0, plus), source.slice(plus + 1)],
    nDigits = Math.max(first.length, second.length),
    digits = [];
  for (let i = 0, carry = 0; i <= nDigits; i++) {
    carry += (first.at(-1 - i) ?? 0) + (second.at(-1 - i) ?? 0);
    digits.push(carry % n);
    carry = Math.floor(carry / n);
  }
  return digits.reverse();
}

const OPEN = 2, // brackets follow the symbols 0 and 1
  CLOSE = 3;

/** @type {Rule} */
function brackets(source) {
  let depth = 0,
    isBalanced = true;
  for (const bracket of source) {
    depth += bracket === OPEN ? 1 : -1;
    isBalanced &&= depth >= 0;
  }
  return [Number(isBalanced && depth === 0)];
}

/** @type {Record<string, Rule | undefined>} */
const RULES = {
  reverse: (source) => source.toReversed(),
  copy: (source) => source,
  sort: (source) => source.toSorted((a, b) => a - b),
  duplicate: (source) => [...source, ...source],
  "swap-halves": (source) => {
    const half = Math.floor(source.length / 2);
    return [...source.slice(half), ...source.slice(0, half)];
  },
  caesar: (source, n) => source.map((symbol) => (symbol + Math.min(3, n - 1)) % n),
  dedupe: (source) => [...new Set(source)],
  histogram: (source, n) =>
    source.map((symbol) => Math.min(source.filter((each) => each === symbol).length, n - 1)),
  parity: (source) => [sum(source) % 2],
  brackets,
  addition,
  "addition-reversed": (source, n) => addition(source, n).reverse(),
  "modular-addition": (source, n) => [sum(source) % n],
  "odds-first": (source) => [
    ...source.filter((symbol) => symbol % 2),
    ...source.filter((symbol) => symbol % 2 === 0),
  ],
};

/** @type {Record<string, (source: number[], n: number) => boolean>} is it one of the task? */
const CHECKS = {
  brackets: (source) => source.every((symbol) => symbol === OPEN || symbol === CLOSE),
  addition: isAddition,
  "addition-reversed": isAddition,
};

/** @param {number[]} source @param {number} n */
function isAddition(source, n) {
  const plus = source.indexOf(n);
  return plus > 0 && plus === source.lastIndexOf(n) && plus < source.length - 1;
}

/**
 * Return the right output for a source, or null where the page has no rule.
 * @param {string} task @param {number[]} source symbols, counted from 0
 * @param {number} n symbols that the task counts with
 */
export function targetOf(task, source, n) {
  const rule = RULES[task];
  return rule && (CHECKS[task]?.(source, n) ?? true) ? rule(source, n) : null;
}
