// The links of one or several heads, as in the diagram.
import { describeWeights, nameQuery } from "../shared/diagram/describe.js";
import { LinksCanvas } from "../shared/diagram/diagram.js";
import { paintLinks } from "../shared/diagram/paint.js";
import { toRows } from "../shared/attention_weights.js";
import { store } from "../shared/store.js";
import { html, useState } from "../vendor/preact.js";

const MIN_TOKEN_WIDTH = 40,
  MAX_TOKEN_WIDTH = 110,
  CHARACTER_WIDTH = 10,
  MIN_HEIGHT = 300;

/** @import { HeadLinks } from "../shared/diagram/paint.js" */
/** @typedef {HeadLinks & { name?: string }} Head */

/**
 * A query shows its links alone while the user points at it, or selects it with the arrow keys.
 * @param {{ label: string, kind: string, keys: string[], queries: string[], heads: Head[],
 *   titles: string[] }} props
 */
export function TokenLinks({ label, kind, ...links }) {
  const [row, setRow] = useState(/** @type {number | null} */ (null)),
    { keys, queries, heads } = links,
    longest = Math.max(...[...keys, ...queries].map((name) => [...name].length));
  const paint = (/** @type {HTMLCanvasElement} */ canvas) =>
    paintLinks(canvas, {
      ...links,
      output: null,
      outputRow: 0,
      hasMemory: false,
      highlight: row,
      minHeight: MIN_HEIGHT,
      owner: null,
      tokenWidth: Math.max(MIN_TOKEN_WIDTH, Math.min(MAX_TOKEN_WIDTH, CHARACTER_WIDTH * longest)),
    });
  const text =
    row === null || row >= queries.length
      ? "Point at a query, or press the arrow keys, for its weights alone."
      : describeQuery(kind, queries, keys, heads, row);
  return html`<figure class="pg-figure token-links">
    <${LinksCanvas}
      paint=${paint}
      inputs=${[keys, queries, heads, row]}
      label=${label}
      row=${row}
      onPoint=${setRow}
      onSelect=${setRow}
    />
    <figcaption aria-live=${store.liveness.value}>${text}</figcaption>
  </figure>`;
}

/**
 * @param {string} kind @param {string[]} queries @param {string[]} keys
 * @param {Head[]} heads @param {number} row
 */
function describeQuery(kind, queries, keys, heads, row) {
  const texts = heads.map(
    ({ name, weights }) =>
      (name ? name + ": " : "") + describeWeights(keys, toRows(weights, keys.length)[row]),
  );
  return `${nameQuery(kind, queries, row)} attends to ${texts.join("; ")}.`;
}
