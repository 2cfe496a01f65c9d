// Queries and keys with a link for each attention weight, of one head or of several.
import { describeWeights } from "../shared/diagram/describe.js";
import { formatToken } from "../shared/format.js";
import { html, useState } from "../vendor/preact.js";

export { describeWeights };

const MIN_WEIGHT = 0.005;
const WIDTH = 480,
  TOKEN_WIDTH = 110;
const HEAD_DISTANCE = 2.4; // vertical distance of the links of two heads

/** @param {number} weight @param {string} color */
export const linkStyle = (weight, color) => ({
  stroke: color,
  strokeOpacity: 0.12 + 0.88 * weight,
  strokeWidth: 0.5 + 7.5 * weight,
});

/** @typedef {{ name: string, weights: ArrayLike<number>[], color: string }} Head */
/** @typedef {{ side: string, index: number }} Token */

/**
 * Queries on the left, keys on the right. Only the links of the token under the pointer are drawn,
 * or those of the token that a click or the arrow keys have selected.
 * @param {{
 *   label: string, queries: string[], keys: string[], heads: Head[], hint?: string,
 * }} props `hint` describes both sides
 */
export function TokenLinks({ label, queries, keys, heads, hint = "Left: queries. Right: keys." }) {
  const [hovered, setHovered] = useState(/** @type {Token | null} */ (null)),
    [selected, setSelected] = useState(/** @type {Token | null} */ (null)),
    names = { query: queries.map(formatToken), key: keys.map(formatToken) },
    active = [hovered, selected].find((each) => each && each.index < names[each.side].length),
    longest = Math.max(queries.length, keys.length),
    rowHeight = Math.max(16, Math.min(30, 420 / longest)),
    isSingle = heads.length === 1,
    distance = Math.min(HEAD_DISTANCE, (0.6 * rowHeight) / heads.length),
    y = (i) => 6 + (i + 0.5) * rowHeight;
  const onKeyDown = (event) => {
    if (event.key === "Escape") setSelected(null);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const { side, index } = active ?? { side: "query", index: -1 },
      newSide = { ArrowLeft: "query", ArrowRight: "key" }[event.key] ?? side,
      offset = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0,
      last = names[newSide].length - 1;
    setSelected({ side: newSide, index: Math.max(0, Math.min(last, index + offset)) });
  };
  const hasLink = (query, key) =>
    !active || active.index === (active.side === "query" ? query : key);
  const isSame = (token, { side, index }) => token?.side === side && token.index === index;
  const renderTokens = (side, x, anchor) =>
    names[side].map(
      (name, index) =>
        html`<text
          key=${side + index}
          class=${isSame(active, { side, index }) ? "active" : ""}
          x=${x}
          y=${y(index)}
          text-anchor=${anchor}
          onPointerEnter=${() => setHovered({ side, index })}
          onClick=${() => setSelected(isSame(selected, { side, index }) ? null : { side, index })}
        >
          ${name}
        </text>`,
    );
  const text = active
    ? describeActive(active, queries, keys, heads)
    : hint + " Select a token, by a click or the arrow keys, to see its weights.";
  return html`<figure class="pg-figure token-links">
    <svg
      viewBox=${`0 0 ${WIDTH} ${12 + rowHeight * longest}`}
      role="img"
      tabindex="0"
      aria-label=${label}
      onKeyDown=${onKeyDown}
      onPointerLeave=${() => setHovered(null)}
      onBlur=${() => setSelected(null)}
    >
      ${heads.map((head, i) =>
        renderHead(head, (i - (heads.length - 1) / 2) * distance, { y, hasLink, isSingle }),
      )}
      ${renderTokens("query", TOKEN_WIDTH, "end")}
      ${renderTokens("key", WIDTH - TOKEN_WIDTH, "start")}
    </svg>
    <figcaption aria-live="polite">${text}</figcaption>
  </figure>`;
}

/**
 * Draw the links of a head.
 * @param {Head} head
 * @param {number} offset the vertical distance from the middle of the tokens
 * @param {{
 *   y: (row: number) => number,
 *   hasLink: (query: number, key: number) => boolean,
 *   isSingle: boolean,
 * }} layout
 */
function renderHead({ weights, color, name }, offset, { y, hasLink, isSingle }) {
  const [left, right, middle] = [TOKEN_WIDTH + 8, WIDTH - TOKEN_WIDTH - 8, WIDTH / 2];
  return weights.flatMap((row, query) =>
    Array.from(row, (weight, key) => {
      if (weight < MIN_WEIGHT || !hasLink(query, key)) return null;
      const [start, end] = [query, key].map((index) => y(index) + offset);
      return html`<path
        key=${`${name} ${query} ${key}`}
        d=${`M${left} ${start}C${middle} ${start} ${middle} ${end} ${right} ${end}`}
        style=${linkStyle(isSingle ? weight : weight / 2, color)}
      />`;
    }),
  );
}

function describeActive({ side, index }, queries, keys, heads) {
  const isQuery = side === "query",
    names = isQuery ? queries : keys,
    others = isQuery ? keys : queries,
    values = ({ weights }) => (isQuery ? [...weights[index]] : weights.map((row) => row[index])),
    texts = heads.map(
      (head) => (heads.length > 1 ? head.name + ": " : "") + describeWeights(others, values(head)),
    );
  return `Position ${index + 1} (${names[index]}) as a ${side}. Weights: ${texts.join("; ")}.`;
}
