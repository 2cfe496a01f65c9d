// Text classification with a trained head, or with random ones (pretrained/inference.py).
import { html } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { shortModelName } from "./models.js";
import {
  createPipeline,
  formatProbability,
  modelInput,
  ModelTokens,
  Notes,
  textArea,
} from "./pipeline.js";

function Labels({ result }) {
  const { model, trained: isTrained, labels, heads, tokens, notes } = result,
    name = shortModelName(model);
  if (!isTrained)
    return html`<h4>Ten randomly initialized heads on ${name}</h4>
      <${BarList}
        label="Predictions of random heads"
        items=${heads.map(({ seed, label, probability }) => ({
          label: `seed ${seed}: ${label}`,
          value: probability,
          title: "A head initialized with this seed",
        }))}
      />
      <${Notes} notes=${notes} />`;
  return html`<h4>Predictions of ${name}</h4>
    <${BarList}
      label="Predicted labels"
      format=${formatProbability}
      items=${labels.map(({ label, probability }) => ({ label, value: probability }))}
    />
    <h4>Input tokens</h4>
    <${ModelTokens} tokens=${tokens} />
    <${Notes} notes=${notes} />`;
}

const pipeline = createPipeline("classify", {
  kind: "classify",
  fields: [modelInput("bert-base-uncased"), textArea("text", "Text", "what a good film")],
  submitLabel: "Classify",
  emptyText:
    "the predicted labels. A model without a classification head, such as bert-base-uncased, " +
    "gets ten randomly initialized heads, whose predictions are meaningless. " +
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english has a trained head, and the " +
    "section Train a classifier trains one.",
  Result: Labels,
});
export const { View: Classification } = pipeline;

/** Classify a text with a model that was trained here. */
export function classify(model, text) {
  pipeline.values.set("model0", model);
  pipeline.values.set("text", text);
  pipeline.run();
}
