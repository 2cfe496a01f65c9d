// The examples of the benchmark: a matrix of examples and models, and the predictions for one.
import { html, signal } from "../vendor/preact.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { formatCount, formatMessage } from "../shared/format.js";
import { results, sortedItems, sortedRows } from "./benchmark_table.js";
import { visibleWhitespace } from "./pipeline.js";

/** The number of the example whose predictions are open; null without one. */
const opened = signal(/** @type {number | null} */ (null));

/** Return the matrix: a column for each model with predictions, and a row for each example. */
export function buildMatrix(state) {
  const items = sortedItems(state).filter(([, predictions]) => predictions.size),
    columns = sortedRows(state)
      .filter(([id]) => items.some(([, predictions]) => predictions.has(id)))
      .map(([id, row]) => ({
        id,
        name: row.model,
        correct: items.filter(([, predictions]) => predictions.get(id)?.correct).length,
      }));
  const rows = items.map(([number, predictions]) => ({
    number,
    predictions,
    ...firstOf(predictions),
  }));
  return { columns, rows };
}
const firstOf = (predictions) => {
  const { source, target } = predictions.values().next().value;
  return { source, target };
};

function Mark({ item, name }) {
  if (!item)
    return html`<td class="mark"><span class="pg-visually-hidden">no prediction</span></td>`;
  const text = item.correct ? "correct" : "wrong";
  return html`<td
    class=${"mark " + text}
    title=${`${name}: ${text}, ${visibleWhitespace(item.raw_output)}`}
  >
    <span aria-hidden="true">${item.correct ? "✓" : "✗"}</span>
    <span class="pg-visually-hidden">${" " + text}</span>
  </td>`;
}

function Example({ row, columns }) {
  const isOpen = opened.value === row.number;
  return html`<tr class="item">
      <th scope="row">
        <button
          type="button"
          aria-expanded=${String(isOpen)}
          onClick=${() => (opened.value = isOpen ? null : row.number)}
        >
          ${row.source} → ${row.target}
        </button>
      </th>
      ${columns.map(
        ({ id, name }) => html`<${Mark} key=${id} item=${row.predictions.get(id)} name=${name} />`,
      )}
    </tr>
    ${
      isOpen &&
      html`<tr class="predictions">
        <td colspan=${columns.length + 1}>
          ${columns.map(
            ({ id, name }) =>
              row.predictions.has(id) &&
              html`<${ModelPrediction} key=${id} name=${name} item=${row.predictions.get(id)} />`,
          )}
        </td>
      </tr>`
    }`;
}

function Prediction({ item }) {
  if (item.prediction === null)
    return html`<span class="pg-bad">
      no prediction: the output is not a list of tokens separated by spaces
    </span>`;
  return html`<${TokenStrip}
    label="Prediction"
    tokens=${item.prediction.map((token) => token ?? "?")}
    targets=${item.target.split(" ")}
  />`;
}

function Candidates({ item }) {
  const sorted = [...item.candidates].sort(
    (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity),
  );
  return html`<details>
    <summary>
      The target has rank ${item.rank} of ${formatCount(sorted.length, "candidate")} by
      log-probability
    </summary>
    <table class="candidates">
      <tbody>
        ${sorted.map(
          (each, i) =>
            html`<tr key=${i} class=${each.is_target ? "target" : ""}>
              <td>${each.tokens}</td>
              <td>${each.origin}${each.is_target && " ✓ target"}</td>
              <td class="pg-number">${each.score === null ? "–∞" : each.score.toFixed(2)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </details>`;
}

function ModelPrediction({ name, item }) {
  return html`<div class="prediction-of">
    <h4>${name}</h4>
    <dl>
      ${
        item.prompt &&
        html`<dt>Prompt</dt>
          <dd><pre tabindex="0">${item.prompt}</pre></dd>`
      }
      ${
        item.tokens.length > 0 &&
        html`<dt>${formatCount(item.tokens.length, "token")}</dt>
          <dd class="prompt-tokens" tabindex="0">
            <${TokenStrip}
              label="Tokens of the prompt"
              tokens=${item.tokens.map(visibleWhitespace)}
              titles=${item.tokens.map((_, i) => `position ${i + 1}, id ${item.ids[i] ?? "–"}`)}
            />
          </dd>`
      }
      <dt>Output</dt>
      <dd><code class="raw">${visibleWhitespace(item.raw_output)}</code></dd>
      <dt>Parsed as</dt>
      <dd class="parsed"><${Prediction} item=${item} /></dd>
      ${
        item.candidates.length > 0 &&
        html`<dt>Ranking</dt>
          <dd><${Candidates} item=${item} /></dd>`
      }
    </dl>
  </div>`;
}

function FewShotExamples({ examples }) {
  return html`<details class="few-shot">
    <summary>Few-shot examples (not held out)</summary>
    <pre tabindex="0">
${examples.map(([source, target]) => `${source}  →  ${target}`).join("\n")}</pre>
  </details>`;
}

export function Examples() {
  const { settings } = results.value,
    { columns, rows } = buildMatrix(results.value);
  if (!rows.length) return null;
  return html`<p class="pg-hint">${formatMessage(settings?.note)}</p>
    ${
      settings?.few_shot_examples?.length > 0 &&
      html`<${FewShotExamples} examples=${settings.few_shot_examples} />`
    }
    <div class="pg-table-box" tabindex="0" role="region" aria-label="Predictions by example">
      <table class="pg-table items">
        <caption class="pg-visually-hidden">
          Predictions by example and model
        </caption>
        <thead>
          <tr>
            <th scope="col">source → target</th>
            ${columns.map(
              ({ id, name, correct }) =>
                html`<th key=${id} scope="col">
                  ${name + " "}<span class="pg-sub">${correct} of ${rows.length}</span>
                </th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${rows.map((row) => html`<${Example} key=${row.number} row=${row} columns=${columns} />`)}
        </tbody>
      </table>
    </div>`;
}
