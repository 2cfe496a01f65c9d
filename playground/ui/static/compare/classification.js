// Classification.
import { el } from "../shared/dom.js";
import {
  createBarList,
  createInferenceForm,
  createNotes,
  createTextBox,
  createTokenList,
  shortModelName,
} from "./inference_form.js";

export function createClassifyForm(name) {
  return createInferenceForm(name, {
    title: "Classify",
    about:
      "Runs the text-classification pipeline. A model without a trained head gets ten " +
      "randomly initialized ones.",
    button: "Classify",
    kind: "classify",
    models: [["Model", "bert-base-uncased"]],
    controls: [["text", "Text", createTextBox("what a good film")]],
    buildRequest: (part) => ({ model: part.fields[0].value, text: part.inputs.text.value }),
    empty:
      "The predicted labels. A model without a classification head, such as " +
      "bert-base-uncased, gets ten randomly initialized heads, whose predictions are " +
      "meaningless. distilbert/distilbert-base-uncased-finetuned-sst-2-english has a " +
      'trained head. The view "Train a head" trains one.',
    onFinish(part, response) {
      if (response.status !== "done") return "";
      const { result } = response;
      part.out.replaceChildren(
        ...(result.trained
          ? [
              el("h4", { textContent: "Predictions of " + shortModelName(result) }),
              createBarList(
                result.labels.map((each, i) => [each.label, each.probability, { chosen: i === 0 }]),
              ),
              el("h4", { textContent: "Input tokens" }),
              createTokenList(result.tokens),
            ]
          : [
              el("h4", {
                textContent: "Ten randomly initialized heads on " + shortModelName(result),
              }),
              createBarList(
                result.heads.map((head) => [
                  "seed " + head.seed + ": " + head.label,
                  head.probability,
                  { title: "A head initialized with this seed" },
                ]),
              ),
            ]),
        ...createNotes(result.notes),
      );
      return "Model: " + result.model;
    },
  });
}
