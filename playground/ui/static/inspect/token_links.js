// Queries and keys with a link for each attention weight.
import { html, useState } from "../vendor/preact.js";

const MIN_WEIGHT = 0.005;
const WIDTH = 480,
  TOKEN_WIDTH = 110;
const SIDES = /** @type {const} */ ({ query: "ArrowLeft", key: "ArrowRight" });

/** @param {number} weight @param {string} color */
export const linkStyle = (weight, color) => ({
  stroke: color,
  strokeOpacity: 0.12 + 0.88 * weight,
  strokeWidth: 0.5 + 7.5 * weight,
});

/**
 * Return the weights of a query or key in words, the largest first.
 * @param {string[]} names
 * @param {number[]} weights
 */
export const describeWeights = (names, weights) =>
  weights
    .map((weight, i) => ({ weight, name: `${names[i]} (position ${i + 1})` }))
    .filter(({ weight }) => weight >= MIN_WEIGHT)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, 3)
    .map(({ weight, name }) => `${name} ${weight.toFixed(3)}`)
    .join(", ");

/**
 * Queries on the left, keys on the right. A token under the pointer, or selected by the arrow keys,
 * shows only its links.
 * @param {{
 *   label: string,
 *   queries: string[],
 *   keys: string[],
 *   weights: ArrayLike<number>[],
 *   color: string,
 * }} props
 */
export function TokenLinks({ label, queries, keys, weights, color }) {
  const [active, setActive] = useState(/** @type {{ side: string, at: number } | null} */ (null)),
    longest = Math.max(queries.length, keys.length),
    rowHeight = Math.max(16, Math.min(30, 420 / longest)),
    y = (i) => 6 + (i + 0.5) * rowHeight;
  const onKeyDown = (event) => {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const { side, at } = active ?? { side: "query", at: -1 },
      newSide = Object.keys(SIDES).find((each) => SIDES[each] === event.key) ?? side,
      by = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0,
      last = (newSide === "query" ? queries : keys).length - 1;
    setActive({ side: newSide, at: Math.max(0, Math.min(last, at + by)) });
  };
  const hasLink = (query, key) =>
    active === null || active.at === (active.side === "query" ? query : key);
  const links = queries.flatMap((_, query) =>
    keys.map((_, key) => {
      const weight = weights[query][key];
      if (weight < MIN_WEIGHT || !hasLink(query, key)) return null;
      const [left, right, middle] = [TOKEN_WIDTH + 8, WIDTH - TOKEN_WIDTH - 8, WIDTH / 2],
        d = `M${left} ${y(query)}C${middle} ${y(query)} ${middle} ${y(key)} ${right} ${y(key)}`;
      return html`<path key=${`${query} ${key}`} d=${d} style=${linkStyle(weight, color)} />`;
    }),
  );
  const renderTokens = (side, names, x, anchor) =>
    names.map(
      (name, at) =>
        html`<text
          key=${side + at}
          class=${active?.side === side && active?.at === at ? "active" : ""}
          x=${x}
          y=${y(at)}
          text-anchor=${anchor}
          onPointerEnter=${() => setActive({ side, at })}
        >
          ${name}
        </text>`,
    );
  const text = active
    ? describeActive(active, queries, keys, weights)
    : "Left: queries. Right: keys. Point at a token, or use the arrow keys, to see its weights.";
  return html`<figure class="pg-figure token-links">
    <svg
      viewBox=${`0 0 ${WIDTH} ${12 + rowHeight * longest}`}
      role="img"
      tabindex="0"
      aria-label=${label}
      onKeyDown=${onKeyDown}
      onPointerLeave=${() => setActive(null)}
      onBlur=${() => setActive(null)}
    >
      ${links}${renderTokens("query", queries, TOKEN_WIDTH, "end")}
      ${renderTokens("key", keys, WIDTH - TOKEN_WIDTH, "start")}
    </svg>
    <figcaption aria-live="polite">${text}</figcaption>
  </figure>`;
}

function describeActive({ side, at }, queries, keys, weights) {
  const isQuery = side === "query",
    names = isQuery ? queries : keys,
    values = isQuery ? [...weights[at]] : weights.map((row) => row[at]);
  return (
    `Position ${at + 1} (${names[at]}) as a ${side}. Weights: ` +
    describeWeights(isQuery ? keys : queries, values) +
    "."
  );
}
