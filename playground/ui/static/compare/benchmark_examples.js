// The examples of the benchmark with the predictions of one model.
import { html, signal } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { Select } from "../shared/components/select.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { formatMessage } from "../shared/format.js";
import { results, sortedRows } from "./benchmark_table.js";
import { visibleWhitespace } from "./pipeline.js";

/** The id of the row whose predictions are displayed; empty for the first one. */
const selected = signal("");

/** Return the models that have predictions, as options that say how many are right. */
export const listModels = (state) =>
  sortedRows(state)
    .filter(([id]) => state.examples[id])
    .map(([value, { model }]) => {
      const examples = state.examples[value],
        right = examples.filter((each) => each.correct).length;
      return { value, label: `${model}: ${right} of ${examples.length} right` };
    });

const COLUMNS = [
  { key: "source", label: "source" },
  { key: "target", label: "target" },
  {
    key: "prediction",
    label: "prediction",
    value: (item) => Number(item.correct),
    render: ({ prediction, target }) =>
      prediction
        ? html`<${TokenStrip}
            label="Prediction"
            tokens=${prediction.map((token) => token ?? "?")}
            targets=${target.split(" ")}
          />`
        : html`<span class="pg-bad">no list of tokens separated by spaces</span>`,
  },
  {
    key: "raw_output",
    label: "output",
    render: (item) => html`<code>${visibleWhitespace(item.raw_output)}</code>`,
  },
];

const Text = ({ title, children }) =>
  html`<details>
    <summary>${title}</summary>
    <pre tabindex="0">${children}</pre>
  </details>`;

export function Examples() {
  const { settings, examples } = results.value,
    models = listModels(results.value),
    value = models.some((each) => each.value === selected.value) ? selected.value : models[0].value,
    { prompt } = examples[value][0],
    solved = settings?.few_shot_examples ?? [];
  return html`<p class="pg-hint">${formatMessage(settings?.note)}</p>
    <div class="pg-row">
      <${Select}
        label="Predictions of"
        class="predictions-of"
        options=${models}
        value=${value}
        onChange=${(id) => (selected.value = id)}
      />
    </div>
    ${
      solved.length > 0 &&
      html`<${Text} title="Few-shot examples (not held out)">
        ${solved.map((pair) => pair.join("  →  ")).join("\n")}
      <//>`
    }
    ${prompt && html`<${Text} title="Prompt of the first example">${prompt}<//>`}
    <${DataTable}
      key=${value}
      class="items"
      caption="Predictions by example"
      columns=${COLUMNS}
      rows=${examples[value]}
      rowKey=${(item) => String(item.number)}
    />`;
}
