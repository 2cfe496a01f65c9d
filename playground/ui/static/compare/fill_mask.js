// Fill-mask.
import { formatCount } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { visibleWhitespace } from "./benchmark_examples.js";
import {
  answeredBy,
  createBarList,
  createInferenceForm,
  createNotes,
  createNumberBox,
  createTextBox,
  createTokenList,
  shortModelName,
  toInteger,
} from "./inference_form.js";

export function createFillMaskForm(name) {
  return createInferenceForm(name, {
    title: "Fill-mask",
    about: "The fill-mask pipeline: predictions for each masked token",
    button: "Run",
    kind: "inference",
    models: [["Model", "bert-base-uncased"]],
    controls: [
      ["text", "Text with [MASK]", createTextBox("The capital of France is [MASK].")],
      ["top_k", "Candidates", createNumberBox(5, 1, 50)],
    ],
    what: (part) => ({
      task: "fill-mask",
      model: part.fields[0].value,
      text: part.inputs.text.value,
      top_k: toInteger(part.inputs.top_k),
    }),
    empty: "Predictions for each [MASK], with probabilities.",
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response;
      part.out.replaceChildren(
        el("h4", {
          textContent:
            "Input of " +
            shortModelName(result) +
            ": " +
            formatCount(result.tokens.length, "token"),
        }),
        createTokenList(result.tokens),
        ...result.masks.flatMap((mask, i) => [
          el("h4", {
            textContent:
              result.masks.length > 1
                ? "Mask " + (i + 1) + ", token " + (mask.position + 1)
                : "Mask, token " + (mask.position + 1),
          }),
          createBarList(
            mask.candidates.map((each, k) => [
              visibleWhitespace(each.word),
              each.probability,
              { chosen: k === 0, title: each.text },
            ]),
          ),
        ]),
        ...createNotes(result.notes),
      );
      return answeredBy(result);
    },
  });
}
