import { html } from "../../vendor/preact.js";
import { formatToken } from "../format.js";

/** @type {Record<string, string>} */
const SPECIAL_TOKENS = { PAD: "padding", SOS: "start of the sequence", EOS: "end of the sequence" };

/** Tokens from left to right, also those of Arabic. @param {{ tokens: string[] }} props */
export const TokenText = ({ tokens }) =>
  tokens.map((token, i) => html`${i > 0 && " "}<bdi>${token}</bdi>`);

/**
 * A row of tokens. Wrong tokens have an underline and a mark in addition to the color.
 * @param {{ label: string, tokens: string[], targets?: string[], titles?: string[] }} props
 *   `titles` replace the descriptions of the tokens
 */
export function TokenStrip({ label, tokens, targets, titles }) {
  const length = Math.max(tokens.length, targets?.length ?? 0),
    isCorrect = targets && tokens.join("\n") === targets.join("\n");
  /** @param {number} position */
  const renderToken = (position) => {
    const token = tokens[position];
    return html`<span
      key=${position}
      class=${"pg-token" + (targets && token !== targets[position] ? " wrong" : "")}
      title=${titles?.[position] ?? describeToken(token, targets, position)}
      >${token === undefined ? "_" : formatToken(token)}</span
    >`;
  };
  return html`<span class="pg-tokens" role="group" aria-label=${label}>
    ${Array.from({ length }, (_, position) => [renderToken(position), " "])}
    ${
      targets &&
      html`<span
        class=${isCorrect ? "pg-mark right" : "pg-mark wrong"}
        role="img"
        aria-label=${isCorrect ? "right" : "wrong"}
      >
        ${isCorrect ? "✓" : "✗"}
      </span>`
    }
  </span>`;
}

/**
 * @param {string | undefined} token @param {string[] | undefined} targets @param {number} position
 */
function describeToken(token, targets, position) {
  const meaning = token === undefined ? "missing" : (SPECIAL_TOKENS[token] ?? ""),
    target = targets?.[position],
    isWrong = targets && token !== target,
    correction = isWrong
      ? target === undefined
        ? "extra token"
        : "should be " + formatToken(target)
      : "";
  return [`position ${position + 1}`, meaning, correction].filter(Boolean).join("; ");
}
