// An opened block, below its heads: what it does, and how a query of a head gets its weights.
import { paintPixels } from "../canvas.js";
import { SegmentedControl } from "../components/segments.js";
import { useCanvas } from "../components/hooks.js";
import { formatCount, formatNumber } from "../format.js";
import { colorScale } from "../palette.js";
import { html } from "../../vendor/preact.js";
import { BLOCK_TEXTS } from "./describe.js";
/** @import { AttentionScoresView } from "../responses.js" */
/** @import { Block } from "./structure.js" */

/** A vector as a row of shades. @param {{ values: (number | null)[], max: number }} props */
function Strip({ values, max }) {
  const canvas = useCanvas(
    (element) => {
      const color = colorScale(max, true);
      paintPixels(element, 1, values.length, (_, i) => color(values[i] ?? 0));
    },
    [values, max],
  );
  return html`<canvas
    ref=${canvas}
    class="vector"
    role="img"
    aria-label=${values.map((value) => formatNumber(value ?? 0)).join(", ")}
  ></canvas>`;
}

const formatScore = (/** @type {number | null} */ value) =>
  value === null ? "−∞" : value.toFixed(2).replace("-", "−");

/** @param {(number | null)[]} vector */
const maxAbs = (vector) => Math.max(...vector.map((value) => Math.abs(value ?? 0)));

/** @param {{ scores: AttentionScoresView, axes: string[][], row: number }} props */
function ScoreTable({ scores, axes: [queries, keys], row }) {
  const { query, keys: vectors, products, weights } = scores,
    terms = vectors.map((key) => key.map((value, i) => (value ?? 0) * (query[i] ?? 0))),
    max = maxAbs([query, ...vectors].flat()),
    maxTerm = maxAbs(terms.flat());
  return html`<table>
    <thead>
      <tr>
        <th scope="col">token</th>
        <th scope="col">vector</th>
        <th scope="col" class="terms">q × k</th>
        <th scope="col">score</th>
        <th scope="col">weight</th>
      </tr>
    </thead>
    <tbody>
      <tr class="query">
        <th scope="row"><small>query </small><bdi>${queries[row]}</bdi></th>
        <td><${Strip} values=${query} max=${max} /></td>
        <td class="terms"></td>
        <td colspan="2"></td>
      </tr>
      ${keys.map(
        (token, i) =>
          html`<tr key=${i}>
            <th scope="row"><small>key </small><bdi>${token}</bdi></th>
            <td><${Strip} values=${vectors[i]} max=${max} /></td>
            <td class="terms"><${Strip} values=${terms[i]} max=${maxTerm} /></td>
            <td title=${`q · k = ${formatScore(products[i])}`}>${formatScore(scores.scores[i])}</td>
            <td>
              <span class="weight" style=${{ "--share": 100 * (weights[i] ?? 0) + "%" }}>
                ${(weights[i] ?? 0).toFixed(3)}
              </span>
            </td>
          </tr>`,
      )}
    </tbody>
  </table>`;
}

/** @param {{ scores: any, onQuery: (query: number) => void }} props */
function BlockScores({ scores, onQuery }) {
  const { head, query } = scores.options,
    size = scores.query.length,
    queries = scores.axes[0].map((/** @type {string} */ token, /** @type {number} */ i) => ({
      value: String(i),
      label: token,
      title: `Query ${i + 1}: ${token}`,
    }));
  return html`<section class="block-scores" aria-label="Attention scores of a query">
    <div class="pg-row bar">
      <h4>Head ${head + 1}, query</h4>
      <${SegmentedControl}
        label="Query"
        options=${queries}
        value=${String(query)}
        onChange=${(/** @type {string} */ value) => onQuery(Number(value))}
      />
    </div>
    <${ScoreTable} scores=${scores} axes=${scores.axes} row=${query} />
    <p class="pg-hint">
      ${
        `score = q · k / √${size}${scores.bias ? " + position bias" : ""}: how well the query q ` +
        "fits the key k. Softmax turns scores into weights, whose sum is 1. " +
        `A vector has ${size} numbers: blue is positive, orange is negative.`
      }
    </p>
  </section>`;
}

/**
 * @param {{ block: Block, contribution?: number, parameters?: number, scores: any, note?: string,
 *   onQuery: (query: number) => void, children?: any }} props `scores` are those of a query, with
 *   its options and the tokens of both axes; `note` explains why there are none
 */
export function OpenBlock({
  block,
  contribution,
  parameters,
  scores,
  note,
  onQuery,
  children = null,
}) {
  const text = [
    BLOCK_TEXTS[block.kind],
    contribution === undefined
      ? ""
      : `What it adds to the vector of a token is ${contribution.toFixed(2)} times as long as ` +
        "that vector.",
    parameters ? formatCount(parameters, "parameter") + "." : "",
  ];
  return html`<div class="open-block">
    <p>${text.filter(Boolean).join(" ")}</p>
    ${note && html`<p class="pg-hint">${note}</p>`} ${children}
    ${block.heads > 0 && scores && html`<${BlockScores} scores=${scores} onQuery=${onQuery} />`}
  </div>`;
}
