import { formatCount } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { visibleWhitespace } from "./benchmark_examples.js";
import {
  describeModel,
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
    buildRequest: (form) => ({
      task: "fill-mask",
      model: form.fields[0].value,
      text: form.inputs.text.value,
      top_k: toInteger(form.inputs.top_k),
    }),
    empty: "The most probable tokens for each [MASK].",
    onFinish(form, response) {
      if (response.status !== "done") return "";
      const { result } = response;
      form.out.replaceChildren(
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
            mask.candidates.map((candidate, rank) => [
              visibleWhitespace(candidate.word),
              candidate.probability,
              { chosen: rank === 0, title: candidate.text },
            ]),
          ),
        ]),
        ...createNotes(result.notes),
      );
      return describeModel(result);
    },
  });
}
