// How a query of the selected head gets its attention weights: below the diagram while a block of
// attention is open. Who computed the picture computes the numbers: the server or the engine.
import { request } from "../../shared/api.js";
import { SegmentedControl } from "../../shared/components/segments.js";
import { formatNumber, formatToken } from "../../shared/format.js";
import { colorScale } from "../../shared/palette.js";
import { Resource } from "../../shared/resource.js";
import { ACTIVE_STATUSES, store } from "../../shared/store.js";
import { useCanvas } from "../../shared/components/use_canvas.js";
import { computed, html, signal, useSignalEffect } from "../../vendor/preact.js";
import { scoresLocally } from "../data/local_model.js";
import { openBlock } from "../data/selection.js";
import { figure } from "../data/snapshots.js";
import { isTabOpen, state } from "../state.js";

/** @import { AttentionScoresView } from "../../shared/responses.js" */

const MIN_INTERVAL_MS = 400; // between two requests while the model trains
/** The query whose numbers the open block shows; null without a block of attention. */
const openQuery = computed(() => {
  const current = figure.value;
  if (!current || !openBlock.value?.heads) return null;
  const { pass, info } = current,
    [layer, head] = state.selectedHead,
    axes = pass.axes[state.selectedKind].map((names) => names.map(formatToken)),
    row = Math.min(state.selectedQuery, axes[0].length - 1),
    text = state.typedPass ? store.sequence.value : info.default_input,
    options = { kind: state.selectedKind, layer, head, query: row },
    selection = JSON.stringify([state.modelRef, text, options]);
  return { selection, pass, step: pass.step, text, options, axes };
});

/** @param {any} query */
async function load({ pass, step, text, options, axes }) {
  if (pass.isLocal) return { ...(await scoresLocally(options)), axes, options };
  const atStep = state.viewedStep === null ? {} : { step: state.viewedStep },
    payload = { owner: state.owner, subject: state.modelRef, view: "attention-scores" },
    scores = await request("inspect/view", { ...payload, text, options, ...atStep });
  if (!scores.error && scores.step !== step && state.viewedStep !== null)
    return { error: "A recording has no query and key vectors of earlier steps." };
  return { ...scores, axes, options };
}

const answer = new Resource(load),
  isResting = signal(false); // after a request while the model trains
let requested = /** @type {any} */ (null);

/** Request the numbers of the open block if they are not those of the displayed pass. */
function refresh() {
  const query = openQuery.value;
  if (!query) {
    requested = null;
    answer.clear();
    return;
  }
  const isSame = query.selection === requested?.selection,
    { isLocal } = query.pass,
    isWaiting = isSame && !isLocal && (answer.isPending.value || isResting.value),
    isKnown = isLocal ? query.pass === requested?.pass : query.step === requested?.step;
  if (!isTabOpen.value || isWaiting || (isSame && isKnown)) return;
  requested = query;
  isResting.value = ACTIVE_STATUSES.includes(state.status);
  setTimeout(() => (isResting.value = false), MIN_INTERVAL_MS);
  answer.load(query);
}

/** A vector as a row of shades. @param {{ values: (number | null)[], max: number }} props */
function Strip({ values, max }) {
  const canvas = useCanvas(
    (element) => {
      const context = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d")),
        color = colorScale(max, true);
      element.width = values.length;
      element.height = 1;
      const image = context.createImageData(values.length, 1);
      values.forEach((value, i) => image.data.set([...color(value ?? 0), 255], 4 * i));
      context.putImageData(image, 0, 0);
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
        <th scope="col">q × k</th>
        <th scope="col">q · k</th>
        <th scope="col">score</th>
        <th scope="col">weight</th>
      </tr>
    </thead>
    <tbody>
      <tr class="query">
        <th scope="row">query ${queries[row]}</th>
        <td><${Strip} values=${query} max=${max} /></td>
        <td colspan="4"></td>
      </tr>
      ${keys.map(
        (token, i) =>
          html`<tr key=${i}>
            <th scope="row">key ${token}</th>
            <td><${Strip} values=${vectors[i]} max=${max} /></td>
            <td><${Strip} values=${terms[i]} max=${maxTerm} /></td>
            <td>${formatScore(products[i])}</td>
            <td>${formatScore(scores.scores[i])}</td>
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

export function BlockScores() {
  useSignalEffect(refresh);
  const note = answer.error.value,
    scores = answer.data.value;
  if (note || !scores) return html`<p class="block-scores pg-hint" hidden=${!note}>${note}</p>`;
  const { head, query: row } = scores.options,
    size = scores.query.length,
    queries = scores.axes[0].map((/** @type {string} */ token, /** @type {number} */ i) => ({
      value: String(i),
      label: token,
      title: `Query ${i + 1}: ${token}`,
    }));
  return html`<section class="block-scores" aria-label="Attention scores of a query">
    <div class="bar">
      <h4>Head ${head + 1}, query</h4>
      <${SegmentedControl}
        label="Query"
        options=${queries}
        value=${String(row)}
        onChange=${(/** @type {string} */ value) => (state.selectedQuery = Number(value))}
      />
    </div>
    <${ScoreTable} scores=${scores} axes=${scores.axes} row=${row} />
    <p class="pg-hint">
      ${
        "q × k: the products of the numbers of both vectors; their sum is q · k. " +
        `score = q · k / √${size}${scores.bias ? " + position bias" : ""}; ` +
        "weights = softmax of the scores. A key whose product with the query is larger gets more " +
        `weight. A vector has ${size} numbers: blue is positive, orange is negative.`
      }
    </p>
  </section>`;
}
