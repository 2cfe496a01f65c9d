// Analogies: sums of input embedding vectors (probing/embeddings.py).
import { html } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { DataTable } from "../shared/components/data_table.js";
import { formatCount, formatInteger } from "../shared/format.js";
import { shortModelName } from "./models.js";
import { createPipeline, modelInput, readableToken } from "./pipeline.js";

const RANK_COLUMNS = [
  { key: "candidates", label: "candidates" },
  { key: "rank", label: "rank", isNumber: true, render: (row) => formatInteger(row.rank) },
  { key: "method", label: "method" },
];
const word = (name, label, value) => ({ name, label, value, isRequired: true, maxLength: 40 });

const listRanks = ({ words, expected }) => [
  { candidates: "all tokens", rank: expected.with_input_words, method: "no exclusions" },
  {
    candidates: "without the three input words",
    rank: expected.without_input_words,
    method: "as in Mikolov et al. 2013",
  },
  {
    candidates: `nearest to ${words.plus} alone`,
    rank: expected.of_the_first_alone,
    method: "no arithmetic, without the three input words",
  },
];

function Nearest({ result }) {
  const { words, nearest, tokens } = result;
  return html`<p class="verdict">${result.finding}</p>
    <h4>Rank of ${words.expected} among ${formatCount(result.vocabulary, "token")}</h4>
    <${DataTable}
      class="ranks"
      caption=${"Rank of " + words.expected}
      isCaptionHidden
      columns=${RANK_COLUMNS}
      rows=${listRanks(result)}
      rowKey=${(row) => row.candidates}
    />
    <h4>
      Nearest to ${words.plus} − ${words.minus} + ${words.also} in ${shortModelName(result.model)},
      by cosine
    </h4>
    <${BarList}
      label="Nearest tokens"
      targetText="expected"
      format=${(cosine) => cosine.toFixed(2)}
      items=${nearest.map((each) => ({
        label: readableToken(each.token) + (each.is_input ? " (input)" : ""),
        value: each.cosine,
        isTarget: each.token === tokens.expected,
        title: "id " + each.id,
      }))}
    />`;
}

export const { View: WordEmbeddings } = createPipeline("analogy", {
  kind: "analogy",
  fields: [
    modelInput("bert-base-uncased"),
    word("plus", "Start", "king"),
    word("minus", "Subtract", "man"),
    word("also", "Add", "woman"),
    word("expected", "Expected", "queen"),
  ],
  submitLabel: "Find nearest tokens",
  emptyText:
    "the tokens nearest to the sum, and the rank of the expected word: among all tokens, without " +
    "the three input words, and by similarity to one input word alone.",
  isAutomatic: true,
  hasExample: true,
  Result: Nearest,
});
