// One word with two meanings, by layer (probing/embeddings.py).
import { html, useMemo } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { LineChart } from "../shared/components/line_chart.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { INPUT_TOKENS } from "../shared/strings.js";
import { shortModelName } from "./models.js";
import { createPipeline, modelInput, Notes, readableToken, textArea } from "./pipeline.js";

const formatCosine = (value) =>
  value === null || value === undefined ? "–" : Number(value).toFixed(2);
const isNumber = (value) => typeof value === "number";

/** The range of the y axis: from the lowest cosine, at most 0, to 1. */
export function cosineRange(layers) {
  const values = layers.flatMap((each) => [
    each.similarity,
    each.baseline,
    ...each.references.flat(),
  ]);
  return [Math.min(0, Math.floor(10 * Math.min(...values.filter(isNumber))) / 10), 1];
}

const line = (layers, key, label, read, color) => {
  const points = layers.filter((each) => isNumber(read(each)));
  return { key, label, x: points.map((each) => each.layer), y: points.map(read), color };
};

/** The charts of a result: the two occurrences, and each reference word with both of them. */
function buildCharts({ word, references, layers }) {
  const options = (label) => ({
    label,
    xLabel: "layer",
    yRange: cosineRange(layers),
    formatY: formatCosine,
    syncKey: "polysemy",
  });
  return [
    {
      options: options(`Cosine of the two occurrences of ${word}`),
      series: [
        line(layers, "pair", `two occurrences of ${word}`, (each) => each.similarity, 0),
        line(layers, "baseline", "mean of other pairs of words", (each) => each.baseline, 1),
      ],
    },
    ...references.map((reference, k) => ({
      options: { ...options(`Cosine with ${reference}`), height: 110 },
      series: ["first", "second"].map((which, side) =>
        line(layers, which, `${which} ${word}`, (each) => each.references[k]?.[side], side),
      ),
    })),
  ];
}

function LayerTable({ result: { references, layers } }) {
  const column = (key, label, value) => ({
    key,
    label,
    isNumber: true,
    value,
    render: (row) => formatCosine(value(row)),
  });
  const columns = [
    { key: "layer", label: "layer", isNumber: true, render: (row) => row.layer || "input" },
    column("similarity", "the two", (row) => row.similarity),
    column("baseline", "other pairs", (row) => row.baseline),
    ...references.flatMap((reference, k) =>
      [0, 1].map((side) =>
        column(`${k}.${side}`, `${reference} ${side + 1}`, (row) => row.references[k]?.[side]),
      ),
    ),
  ];
  return html`<details>
    <summary>Table of the values</summary>
    <${DataTable}
      caption="Cosine by layer"
      columns=${columns}
      rows=${layers}
      rowKey=${(row) => String(row.layer)}
      csvName="polysemy"
    />
  </details>`;
}

function Similarities({ result }) {
  const [first, second] = result.occurrences,
    [main, ...others] = useMemo(() => buildCharts(result), [result]),
    which = (i) => (first.includes(i) ? " 1" : second.includes(i) ? " 2" : "");
  return html`<p class="verdict">${result.finding}</p>
    <${TokenStrip}
      label=${INPUT_TOKENS}
      tokens=${result.tokens.map((token, i) => readableToken(token) + which(i))}
      weights=${result.tokens.map((_, i) => (which(i) ? 1 : 0))}
    />
    <p class="pg-hint">
      Similarity in ${shortModelName(result.model)} after each layer; layer 0 is the input of the
      first one. In all layers of BERT and GPT-2, the mean cosine of two random words is above 0. In
      the last layer of GPT-2 it is almost 1 (Ethayarajh 2019, section 4.1). Therefore compare with
      the other pairs.
    </p>
    <div class="charts">
      <${LineChart} ...${main} />
      <div class="charts small">
        ${others.map((chart) => html`<${LineChart} key=${chart.options.label} ...${chart} />`)}
      </div>
    </div>
    <${Notes} notes=${result.notes} />
    <${LayerTable} result=${result} />`;
}

export const { View: Polysemy } = createPipeline("banks", {
  kind: "word-in-context",
  fields: [
    modelInput("bert-base-uncased"),
    textArea("text", "Text", "The bank by the river was steep, but the bank refused my loan"),
    {
      name: "word",
      label: "Word that occurs twice",
      value: "bank",
      isRequired: true,
      maxLength: 40,
    },
    {
      name: "references",
      label: "Words to compare with",
      value: "river, shore, money, loan",
      maxLength: 330,
      hint: "At most eight, separated by commas. Each is a separate input.",
    },
  ],
  buildRequest: ({ references, ...request }) => ({
    ...request,
    references: references
      .split(",")
      .map((each) => each.trim())
      .filter(Boolean),
  }),
  examples: [
    {
      label: "A bank and a loan, with “anyway”",
      values: {
        text: "The bank by the river was steep — but the bank refused my loan anyway",
        word: "bank",
        references: "river, shore, money, loan",
      },
    },
  ],
  submitLabel: "Compare occurrences",
  emptyText:
    "the similarity of the two occurrences after each layer. Both start from the same token " +
    "embedding; position and context separate them.",
  isAutomatic: true,
  hasExample: true,
  Result: Similarities,
});
