// An opened block: what it does, the map of a head with its tokens, and what one row reads.
import { html } from "../vendor/preact.js";
import { firstPredictedRow } from "../train/diagram/structure.js";
import { HeadMap, shorten, weightsOf } from "./head.js";
import { model, nameOf, displayed, row } from "./state.js";

/** @typedef {import("../engine/forward_pass.js").Component} Component */

const MAX_LISTED_KEYS = 8;
/** @type {Record<string, string>} */
export const EXPLANATIONS = {
  encoder: "Each token reads from all tokens of the input.",
  decoder: "Each token reads from itself and from the tokens before it. Later ones are hidden.",
  cross:
    "Here the decoder reads the input: the tokens that it needs to write its next one. " +
    "Without it, the decoder does not know the input.",
  "feed-forward": "A small network changes the numbers of each token, without the other tokens.",
};

/** @param {{ kind: string, component: string, head: Component | null }} props */
export function OpenBlock({ kind, component, head }) {
  const contribution = displayed.value.pass.contributions[component];
  return html`<div class="opened">
    <p>
      ${EXPLANATIONS[kind]} What it adds to the vector of a token is ${contribution.toFixed(2)}
      times as long as that vector.
    </p>
    ${head && html`<${LargeMap} head=${head} /><${RowWeights} head=${head} />`}
  </div>`;
}

/** The names of the rows: "SOS → 5" is a token and the next one. @param {Component} head */
function rowNames({ kind }) {
  const { axes, output } = displayed.value,
    [queries] = axes[kind],
    first = firstPredictedRow(kind, queries.length, { axes, probe: output });
  return queries.map((token, i) => {
    const next = first === null ? undefined : output.predicted[i - first];
    return shorten(token, 9) + (next === undefined ? "" : ` → ${shorten(next, 9)}`);
  });
}

/** @param {{ head: Component }} props */
function LargeMap({ head }) {
  const { weights, queries, keys } = weightsOf(head),
    point = (/** @type {any} */ { offsetY, target }) => {
      const at = Math.floor((offsetY / target.clientHeight) * queries.length);
      row.value = Math.max(0, Math.min(queries.length - 1, at));
    };
  return html`<div class="large-map" style=${{ "--tokens": Math.max(keys.length, queries.length) }}>
    <div class="row-names" aria-hidden="true">
      ${rowNames(head).map(
        (name, i) => html`<bdi key=${i} class=${i === row.value ? "at" : ""}>${name}</bdi>`,
      )}
    </div>
    <${HeadMap}
      head=${head}
      role="img"
      aria-label=${`Map of ${nameOf(head)}: a row for each token that reads`}
      onPointerMove=${point}
      onPointerDown=${point}
    />
    <div class="column-names" aria-hidden="true">
      ${keys.map((name, i) => {
        const className = name.length > 2 ? "long" : "";
        return html`<bdi key=${i} class=${className}>${shorten(name, 9)}</bdi>`;
      })}
    </div>
    <p>The darkest square is the weight ${Math.max(...weights).toFixed(2)}.</p>
  </div>`;
}

/** The weights of one row, and their scores. @param {{ head: Component }} props */
function RowWeights({ head }) {
  const { weights, queries, keys } = weightsOf(head),
    names = rowNames(head),
    at = Math.min(row.value ?? 0, queries.length - 1),
    scores = scoresOf(head, at),
    isBiased = ["alibi", "t5"].includes(model.config.position_type) && head.kind !== "cross",
    visible = head.kind === "decoder" ? keys.slice(0, at + 1) : keys,
    ranked = visible
      .map((token, i) => ({ token, i, weight: weights[at * keys.length + i] }))
      .sort((a, b) => b.weight - a.weight)
      .slice(0, MAX_LISTED_KEYS);
  return html`<label class="row-choice">
      Row
      <select
        value=${String(at)}
        onChange=${(/** @type {any} */ event) => (row.value = Number(event.target.value))}
      >
        ${names.map(
          (name, i) => html`<option key=${i} value=${String(i)}>${i + 1}: ${name}</option>`,
        )}
      </select>
    </label>
    <table>
      <thead>
        <tr>
          <th scope="col">reads</th>
          <th scope="col">weight</th>
          <th scope="col">q·k ÷ √${model.config.keySize}</th>
        </tr>
      </thead>
      <tbody>
        ${ranked.map(
          ({ token, i, weight }) =>
            html`<tr key=${i}>
              <th scope="row">${i + 1}: <bdi>${token}</bdi></th>
              <td style=${{ "--share": `${100 * weight}%` }}>${weight.toFixed(3)}</td>
              <td>${scores[i].toFixed(2)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    <p>
      The score is how well the question of this token (q) fits the label of the other one (k).
      ${isBiased && " The distance between both is added. "} Softmax turns scores into weights,
      whose sum is
      1.${visible.length > MAX_LISTED_KEYS ? ` The ${MAX_LISTED_KEYS} largest are listed.` : ""}
    </p>`;
}

/** Return q·k / √K of a query with each key. @param {Component} head @param {number} query */
function scoresOf({ kind, layer, head }, query) {
  const { n_heads, n_kv_heads, keySize: K } = model.config,
    { query_QHK, key_MGK } = displayed.value.pass.vectors[kind][Number(layer)],
    q = (query * n_heads + Number(head)) * K,
    g = Math.floor((Number(head) * n_kv_heads) / n_heads);
  return Array.from({ length: key_MGK.length / (n_kv_heads * K) }, (_, m) => {
    const k = (m * n_kv_heads + g) * K;
    let sum = 0;
    for (let i = 0; i < K; i++) sum += query_QHK[q + i] * key_MGK[k + i];
    return sum / Math.sqrt(K);
  });
}
