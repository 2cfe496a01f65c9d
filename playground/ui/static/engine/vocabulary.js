// Tokens and their ids: PAD, SOS and EOS, then the symbols of the task (tasks/vocabulary.py).

export const PAD = 0;
export const SOS = 1;
export const EOS = 2;
const SPECIAL_TOKENS = ["PAD", "SOS", "EOS"];

export class Vocabulary {
  /** @param {string[]} symbols */
  constructor(symbols) {
    this.symbols = symbols;
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
