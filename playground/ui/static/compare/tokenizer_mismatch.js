// Tokenizer mismatch.
import { formatCount, formatNumber } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { visibleWhitespace } from "./benchmark_examples.js";
import {
  createBarList,
  createInferenceForm,
  createNotes,
  createTextBox,
  readableToken,
} from "./inference_form.js";

export function createTokenizerMismatchForm(name) {
  return createInferenceForm(name, {
    title: "Tokenizer mismatch",
    about: "A model with the tokenizer of another model",
    button: "Run",
    kind: "tokenizer-mismatch",
    models: [
      ["Model", "gpt2"],
      ["Tokenizer of", "bert-base-uncased"],
    ],
    controls: [
      [
        "text",
        "Text",
        Object.assign(createTextBox(""), {
          required: false,
          placeholder: "If empty: an example for the model",
        }),
        "A masked language model needs a [MASK] in the text",
      ],
    ],
    buildRequest: ({ fields, inputs }) => ({
      model: fields[0].value,
      tokenizer: fields[1].value,
      ...(inputs.text.value.trim() ? { text: inputs.text.value } : {}),
    }),
    empty:
      "A model receives token ids, not words. The same text is encoded with its own " +
      "tokenizer and with that of another model.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response,
        mark = (text, title) => el("span", { className: "row-name", textContent: text, title });
      const readBy = (title, side) =>
        el(
          "section",
          {},
          el("h4", { textContent: title }),
          el(
            "div",
            { className: "pairs" },
            el(
              "span",
              { className: "pair names" },
              mark("piece", ""),
              mark("id", "The token id that the model receives"),
              mark("to the model", "The token with this id in the model's own tokenizer"),
            ),
            ...side.tokens.map((token) => {
              const same = token.in_range && token.own_token === token.token;
              return el(
                "span",
                {
                  className: "pair" + (same ? "" : " differs"),
                  title: !token.in_range
                    ? "outside the embedding table of the model, therefore omitted"
                    : same
                      ? "the same token in both tokenizers"
                      : "a different token in the model's own tokenizer",
                },
                el("span", { textContent: readableToken(token.token) }),
                el("span", { className: "id", textContent: token.id.toLocaleString("en") }),
                el("span", {
                  textContent: !token.in_range
                    ? "✗ none"
                    : (same ? "= " : "≠ ") + readableToken(token.own_token || "unused"),
                }),
              );
            }),
          ),
          el(
            "dl",
            {},
            el("dt", { textContent: result.kind === "causal" ? "continuation" : "prediction" }),
            el(
              "dd",
              {},
              el("code", { className: "raw", textContent: visibleWhitespace(side.output) }),
            ),
            ...(side.output_by_own !== side.output
              ? [
                  el("dt", {
                    textContent: "own decoding",
                    title: "The same ids, decoded by the model's own tokenizer",
                  }),
                  el(
                    "dd",
                    {},
                    el("code", {
                      className: "raw",
                      textContent: visibleWhitespace(side.output_by_own),
                    }),
                  ),
                ]
              : []),
            ...(side.mean_nll === null
              ? []
              : [
                  el("dt", {
                    textContent: "loss",
                    title: "The mean negative log-probability of the text after its first token",
                  }),
                  el("dd", { textContent: formatNumber(side.mean_nll) + " nats per token" }),
                ]),
          ),
          ...(side.candidates.length
            ? [
                createBarList(
                  side.candidates.map((each, i) => [
                    visibleWhitespace(each.word),
                    each.probability,
                    {
                      chosen: i === 0,
                      title: "id " + each.id + ", in the model's own tokenizer " + each.word_by_own,
                    },
                  ]),
                ),
              ]
            : []),
        );
      part.out.replaceChildren(
        el("p", { className: "verdict", textContent: "“" + result.text + "”" }),
        readBy("With its own tokenizer, " + result.model, result.own),
        readBy("With the tokenizer of " + result.tokenizer, result.other),
        ...createNotes(result.notes),
      );
      return (
        "Model: " +
        result.model +
        ": " +
        formatCount(result.own.tokens.length, "token") +
        " with its own tokenizer, " +
        result.other.tokens.length +
        " with that of " +
        result.tokenizer
      );
    },
  });
}
