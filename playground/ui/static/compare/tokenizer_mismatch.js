// A model with the tokenizer of another model (probing/tokenizer_mismatch.py).
import { html } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { formatCount, formatInteger, formatNumber } from "../shared/format.js";
import {
  createPipeline,
  modelInput,
  Notes,
  readableToken,
  textArea,
  visibleWhitespace,
} from "./pipeline.js";

/** Describe a token: its id, and what the model's own tokenizer has at this id. */
export function describePair({ token, id, own_token: ownToken, in_range: isInRange }) {
  const isSame = isInRange && ownToken === token;
  if (!isInRange)
    return { isSame, text: "✗ none", title: "Outside the embedding table, so it is omitted" };
  return {
    isSame,
    text: (isSame ? "= " : "≠ ") + readableToken(ownToken || "unused"),
    title: isSame
      ? `id ${id} is the same token in both tokenizers`
      : `id ${id} is another token in the model's own tokenizer`,
  };
}

function Pair({ token }) {
  const { isSame, text, title } = describePair(token);
  return html`<span class=${"pair" + (isSame ? "" : " differs")} title=${title}>
    <span>${readableToken(token.token)}</span>
    <span class="id">${formatInteger(token.id)}</span>
    <span>${text}</span>
  </span>`;
}

function Output({ side, kind }) {
  return html`<dl>
    <dt>${kind === "causal" ? "Continuation" : "Prediction"}</dt>
    <dd><code class="raw">${visibleWhitespace(side.output)}</code></dd>
    ${
      side.output_by_own !== side.output &&
      html`<dt title="The same ids, decoded by the model's own tokenizer">Own decoding</dt>
        <dd><code class="raw">${visibleWhitespace(side.output_by_own)}</code></dd>`
    }
    ${
      side.mean_nll !== null &&
      html`<dt title="Mean negative log-probability of the text after its first token">Loss</dt>
        <dd>${formatNumber(side.mean_nll)} nats per token</dd>`
    }
  </dl>`;
}

function Side({ title, side, kind }) {
  return html`<section>
    <h4>${title}</h4>
    <div class="pairs">
      <span class="pair names"> <span>token</span><span>id</span><span>in the model</span> </span>
      ${side.tokens.map((token, i) => html`<${Pair} key=${i} token=${token} />`)}
    </div>
    <${Output} side=${side} kind=${kind} />
    ${
      side.candidates.length > 0 &&
      html`<${BarList}
        label="Predictions"
        items=${side.candidates.map(({ word, probability, id, word_by_own: ownWord }) => ({
          label: visibleWhitespace(word),
          value: probability,
          title: `id ${id}, in the model's own tokenizer ${ownWord}`,
        }))}
      />`
    }
  </section>`;
}

function Comparison({ result }) {
  const { model, tokenizer, text, kind, own, other, notes } = result;
  return html`<p class="verdict">“${text}”</p>
    <${Side} title=${`With its own tokenizer, ${model}`} side=${own} kind=${kind} />
    <${Side} title=${`With the tokenizer of ${tokenizer}`} side=${other} kind=${kind} />
    <${Notes} notes=${notes} />`;
}

export const { View: TokenizerMismatch } = createPipeline("mismatch", {
  kind: "tokenizer-mismatch",
  fields: [
    modelInput("gpt2"),
    modelInput("bert-base-uncased", "Tokenizer of", "model1"),
    textArea("text", "Text", "", {
      isRequired: false,
      placeholder: "If empty: an example for the model",
      hint: "A masked language model needs a [MASK] in the text.",
    }),
  ],
  buildRequest: ({ model, model1, text }) => ({
    model,
    tokenizer: model1,
    ...(text.trim() ? { text } : {}),
  }),
  submitLabel: "Compare tokenizers",
  emptyText:
    "the same text, encoded with two tokenizers. A model " + "receives token ids, not words.",
  describe: ({ own, other, tokenizer }) =>
    `${formatCount(own.tokens.length, "token")} with its own tokenizer, ` +
    `${formatInteger(other.tokens.length)} with that of ${tokenizer}`,
  Result: Comparison,
});
