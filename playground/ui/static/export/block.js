// An opened block: what it does, the map of a head with its tokens, and what one row reads.
import { html } from "../vendor/preact.js";
import { rowsOf } from "../engine/linear.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { displayed, model, row, switches, weightsOf } from "./state.js";
/** @import { Component } from "../engine/types.js" */

const MAX_LISTED_KEYS = 8;
export const EXPLANATIONS = {
  encoder: "Each token reads from all tokens of the input.",
  decoder: "Each token reads from itself and from the tokens before it. Later ones are hidden.",
  cross:
    "Here the decoder reads the input: the tokens that it needs to write its next one. " +
    "Without it, the decoder does not know the input.",
  "feed-forward": "A small network changes the numbers of each token, without the other tokens.",
};

/** @param {string} token @param {number} most characters */
export function shorten(token, most) {
  const characters = [...token];
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : token;
}

/** @param {{ kind: string, component: string, head: Component | false }} props */
export function OpenBlock({ kind, component, head }) {
  const contribution = displayed.value.pass.contributions[component].toFixed(2);
  return html`<div class="opened">
    <p>
      ${!head && `${EXPLANATIONS[kind]} `}What it adds to the vector of a token is${" "}
      ${contribution} times as long as that vector.
    </p>
    ${head && html`<${HeadDetails} head=${head} />`}
  </div>`;
}

/** The map of a head with its tokens, and what one row reads. @param {{ head: Component }} props */
function HeadDetails({ head }) {
  const { weights, queries, keys, outputRow } = weightsOf(head),
    { position_type, keySize } = model.config,
    isCausal = head.kind === "decoder",
    isBiased = ["alibi", "t5"].includes(position_type) && head.kind !== "cross",
    { predicted } = displayed.value.output,
    names = queries.map((token, i) => {
      const next = outputRow === null ? undefined : predicted[i - outputRow];
      return shorten(token, 9) + (next === undefined ? "" : ` → ${shorten(next, 9)}`);
    }),
    map = {
      rows: names,
      columns: keys.map((token) => shorten(token, 9)),
      values: rowsOf(weights, keys.length),
      mask: isCausal ? queries.map((_, i) => keys.map((_, k) => k <= i)) : null,
      max: Math.max(...weights),
    },
    at = Math.min(row.value ?? 0, queries.length - 1),
    scores = scoresOf(head, at),
    ranked = keys
      .slice(0, isCausal ? at + 1 : keys.length)
      .map((_, i) => ({ i, weight: map.values[at][i] }))
      .sort((a, b) => b.weight - a.weight);
  return html`<div class="details">
    <${HeatMapView}
      label=${`Map of ${switches.nameOf(head)}: a row for each token that reads`}
      data=${map}
      caption="Click a row, or choose it with the arrow keys and Enter."
      onSelect=${(index) => (row.value = index)}
    />
    <table>
      <caption>
        ${`Row ${at + 1}, ${names[at]}:`}
      </caption>
      <thead>
        <tr>
          <th scope="col">reads</th>
          <th scope="col">weight</th>
          <th scope="col">q·k ÷ √${keySize}</th>
        </tr>
      </thead>
      <tbody>
        ${ranked.slice(0, MAX_LISTED_KEYS).map(
          ({ i, weight }) =>
            html`<tr key=${i}>
              <th scope="row">${i + 1}: <bdi>${map.columns[i]}</bdi></th>
              <td style=${{ "--share": `${100 * weight}%` }}>${weight.toFixed(3)}</td>
              <td>${scores[i].toFixed(2).replace("-", "−")}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    <p>
      The score q·k is how well the question of this token (q) fits the label of the other one (k).
      ${isBiased ? " The distance between both is added. " : " "}
      ${"Softmax turns scores into weights, whose sum is 1."}
      ${ranked.length > MAX_LISTED_KEYS && ` The ${MAX_LISTED_KEYS} largest are listed.`}
    </p>
  </div>`;
}

/** Return q·k / √K of a query with each key. @param {Component} head @param {number} query */
function scoresOf({ kind, layer, head }, query) {
  const { n_heads, n_kv_heads, keySize: K } = model.config,
    { query_QHK, key_MGK } = displayed.value.pass.vectors[kind][Number(layer)],
    group = Math.floor((Number(head) * n_kv_heads) / n_heads),
    query_K = rowsOf(query_QHK, K)[query * n_heads + Number(head)],
    keys = rowsOf(key_MGK, K).filter((_, i) => i % n_kv_heads === group);
  return keys.map((key_K) => key_K.reduce((sum, x, k) => sum + x * query_K[k], 0) / Math.sqrt(K));
}
