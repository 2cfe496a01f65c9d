// Fill-mask: the predictions of a masked language model (pretrained/inference.py).
import { html } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { formatCount } from "../shared/format.js";
import { shortModelName } from "./models.js";
import {
  createPipeline,
  ModelTokens,
  modelInput,
  Notes,
  numberInput,
  textArea,
  visibleWhitespace,
} from "./pipeline.js";

function Predictions({ result: { model, tokens, masks, notes } }) {
  return html`<h4>Input of ${shortModelName(model)}: ${formatCount(tokens.length, "token")}</h4>
    <${ModelTokens} tokens=${tokens} />
    ${masks.map((mask, i) => {
      const title = `Mask ${masks.length > 1 ? i + 1 : ""}`.trim();
      return html`<h4>${title}, position ${mask.position + 1}</h4>
        <${BarList}
          label=${`Predictions for ${title.toLowerCase()}`}
          items=${mask.candidates.map(({ word, probability, text }) => ({
            label: visibleWhitespace(word),
            value: probability,
            title: text,
          }))}
        />`;
    })}
    <${Notes} notes=${notes} />`;
}

export const { View: FillMask } = createPipeline("fill", {
  kind: "inference",
  fields: [
    modelInput("bert-base-uncased"),
    textArea("text", "Text with [MASK]", "The capital of France is [MASK]."),
    numberInput("top_k", "Candidates", "5", 1, 50),
  ],
  buildRequest: (request) => ({ task: "fill-mask", ...request }),
  submitLabel: "Fill mask",
  emptyText: "the most probable tokens for each [MASK].",
  isAutomatic: true,
  Result: Predictions,
});
