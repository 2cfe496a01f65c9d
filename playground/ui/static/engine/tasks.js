// The tokens of the built-in tasks (tasks/vocabulary.py), and their rules but for `random`
// (tasks/rules.py, arithmetic.py).
/** @import { Rule } from "./types.js" */

export const PAD = 0;
export const SOS = 1;
export const EOS = 2;
const SPECIAL_TOKENS = ["PAD", "SOS", "EOS"]; // the symbols of the task follow
export const FIRST_SYMBOL = SPECIAL_TOKENS.length;

export class Vocabulary {
  /** @param {string[]} symbols */
  constructor(symbols) {
    this.names = [...SPECIAL_TOKENS, ...symbols];
    this.ids = new Map(symbols.map((symbol, index) => [symbol, index + SPECIAL_TOKENS.length]));
    this.hasCharacters = symbols.every((symbol) => [...symbol].length === 1);
  }

  /**
   * Return the token ids of a text, without EOS. Blanks and commas between characters are optional.
   * It throws a RangeError for a symbol that the task does not have.
   * @param {string} text
   */
  encode(text) {
    const spaced = this.ids.has(",") || !this.hasCharacters ? text : text.replaceAll(",", " "),
      words = spaced.normalize("NFC").split(/\s+/).filter(Boolean),
      symbols = this.hasCharacters ? words.flatMap((word) => [...word]) : words;
    return symbols.map((symbol) => {
      const id = this.ids.get(symbol);
      if (id === undefined) throw new RangeError(`“${symbol}” is not a token of this task`);
      return id;
    });
  }

  /** Return the names of tokens. @param {ArrayLike<number>} tokens */
  decode(tokens) {
    return Array.from(tokens, (token) => this.names[token]);
  }
}

const sum = (/** @type {number[]} */ values) => values.reduce((a, b) => a + b, 0);

/** @type {Rule} */
function addition(source, n) {
  const plus = source.indexOf(n),
    [first, second] = [source.slice(0, plus), source.slice(plus + 1)],
    nDigits = Math.max(first.length, second.length),
    digits = [];
  if (plus < 1 || !second.length || second.includes(n)) return null;
  for (let i = 0, carry = 0; i <= nDigits; i++) {
    carry += (first.at(-1 - i) ?? 0) + (second.at(-1 - i) ?? 0);
    digits.push(carry % n);
    carry = Math.floor(carry / n);
  }
  return digits.reverse();
}

const [OPEN, CLOSE] = [2, 3]; // brackets follow the symbols 0 and 1

/** @type {Rule} */
function brackets(source) {
  let depth = 0,
    isBalanced = true;
  for (const bracket of source) {
    if (bracket !== OPEN && bracket !== CLOSE) return null;
    depth += bracket === OPEN ? 1 : -1;
    isBalanced &&= depth >= 0;
  }
  return [Number(isBalanced && depth === 0)];
}

// The kinds of the English words of `translate`, upper case for the plural; words.py has the words.
const WORD_KINDS = "dDDDaaaaaanNnNnNnNnNnNvVvVvVC",
  [ONE, SEVERAL] = ["da{0,2}n", "Da{0,2}N"],
  PHRASE = `(${ONE}|${SEVERAL})`,
  PHRASES = new RegExp(`^(${PHRASE}|(${ONE}v|${SEVERAL}V)${PHRASE}(C${PHRASE})*)$`);
// The first word of each kind; an object is a noun that is no living being.
const [ADJECTIVE, NOUN, OBJECT, VERB] = [4, 10, 16, 22],
  [NUMBER_OUT, ADJECTIVE_OUT, NOUN_OUT, VERB_OUT, AND_OUT] = [29, 32, 44, 50, 56];

/** @type {Rule} */
function translate(source) {
  const kinds = source.map((word) => WORD_KINDS[word] ?? "?").join(""),
    verb = kinds.search(/v/i),
    isObject = [...kinds.matchAll(/n/gi)].map(({ index }) => Number(source[index] >= OBJECT));
  if (!PHRASES.test(kinds)) return null;
  const phrases = [...kinds.matchAll(/da*n/gi)].map(({ 0: { length }, index }, at) =>
    source
      .slice(index, index + length)
      .reverse()
      .flatMap((word) => {
        if (word >= NOUN) return [NOUN_OUT + Math.floor((word - NOUN) / 2)];
        if (word >= ADJECTIVE) return [ADJECTIVE_OUT + 2 * (word - ADJECTIVE) + isObject[at]];
        return word ? [NUMBER_OUT + word - 1] : []; // "a" has no translation
      }),
  );
  const words = phrases.flatMap((phrase, at) => (at > 1 ? [AND_OUT, ...phrase] : phrase));
  if (verb >= 0) words.push(VERB_OUT + 2 * Math.floor((source[verb] - VERB) / 2) + isObject[0]);
  return words;
}

const RULES = /** @type {Record<string, Rule | undefined>} */ ({
  reverse: (source) => source.toReversed(),
  copy: (source) => source,
  repeat: (source) => source,
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
  "addition-reversed": (source, n) => addition(source, n)?.reverse() ?? null,
  "modular-addition": (source, n) => [sum(source) % n],
  translate,
  "odds-first": (source) => source.toSorted((a, b) => (b % 2) - (a % 2)),
});

/** Whether the page knows the rule of a task. @param {string} task */
export const hasRule = (task) => Object.hasOwn(RULES, task);

/**
 * Return the right output for a source, or null where the page has no rule.
 * @param {string} task @param {number[]} source @param {number} n digits
 */
export const targetOf = (task, source, n) => RULES[task]?.(source, n) ?? null;
