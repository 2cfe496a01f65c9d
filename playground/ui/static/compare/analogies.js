// Analogies.
import { formatCount } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { formatCosine } from "./embeddings.js";
import {
  createBarList,
  createInferenceForm,
  readableToken,
  shortModelName,
} from "./inference_form.js";

export function createAnalogyForm(name) {
  const word = (value) =>
    el("input", { type: "text", value, required: true, maxLength: 40, spellcheck: false });
  return createInferenceForm(name, {
    title: "Analogies",
    about: "king − man + woman: sums of input embedding vectors",
    button: "Run",
    kind: "analogy",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      ["plus", "Start", word("king")],
      ["minus", "Subtract", word("man")],
      ["also", "Add", word("woman")],
      ["expected", "Expected", word("queen")],
    ],
    buildRequest: ({ fields, inputs }) => ({
      model: fields[0].value,
      ...Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value])),
    }),
    empty:
      "The tokens nearest to the sum, and the rank of the expected word: among all tokens, " +
      "among all tokens except the three input words, and by similarity to one input word alone.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response,
        { words, expected } = result,
        ranks = [
          ["among all tokens", expected.with_input_words, "no exclusions"],
          [
            "without the three input words",
            expected.without_input_words,
            "as in Mikolov et al. 2013",
          ],
          [
            "nearest to " + words.plus + " alone",
            expected.of_the_first_alone,
            "no arithmetic, without the three input words",
          ],
        ];
      part.out.replaceChildren(
        el("p", { className: "verdict", textContent: result.finding }),
        el("h4", {
          textContent:
            "Rank of " + words.expected + " among " + formatCount(result.vocabulary, "token"),
        }),
        el(
          "table",
          { className: "sheet ranks" },
          el(
            "tbody",
            {},
            ...ranks.map(([text, rank, how]) =>
              el(
                "tr",
                {},
                el("td", {}, text, el("span", { className: "what", textContent: how })),
                el("td", { className: "number", textContent: "rank " + rank.toLocaleString("en") }),
              ),
            ),
          ),
        ),
        el("h4", {
          textContent:
            "Nearest to " +
            words.plus +
            " − " +
            words.minus +
            " + " +
            words.also +
            " in " +
            shortModelName(result) +
            ", by cosine",
        }),
        createBarList(
          result.nearest.map((each) => [
            readableToken(each.token) + (each.is_input ? " (input)" : ""),
            each.cosine,
            {
              chosen: each.id === tokenIdOf(result, "expected"),
              words: formatCosine(each.cosine),
              title: "id " + each.id,
            },
          ]),
        ),
      );
      return "Computed with " + result.model;
    },
  });
}
const tokenIdOf = (result, name) =>
  (result.nearest.find((each) => each.token === result.tokens[name]) || {}).id;
