// Translation by a pretrained encoder-decoder: its output, and the attention of every head
// (pretrained/attention/translation.py).
import { html, signal } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatPercent } from "../shared/format.js";
import { MOST_PROBABLE_TOKENS } from "../shared/strings.js";
import { AttentionPanel, DISPLAY_OPTIONS, display } from "./attention_panel.js";
import { shortModelName } from "./models.js";
import {
  createPipeline,
  modelInput,
  ModelTokens,
  Notes,
  numberInput,
  readableToken,
  textArea,
} from "./pipeline.js";

const KINDS = ["cross", "encoder", "decoder"];
const kind = signal("cross");
const position = signal(0);
/** The head whose alignment the user selects; null for the best one. */
const selectedHead = signal(/** @type {{ layer: number, head: number } | null} */ (null));
const names = (tokens) => tokens.map((each) => readableToken(each.token));

const buildCausalRow = (row, length) => Array.from({ length }, (_, i) => Number(i <= row));

/** Return the attention of one kind as a panel shows it. */
export function buildPanel(result, name) {
  const source = names(result.source),
    target = names(result.generated),
    inputs = names([result.start, ...result.generated.slice(0, -1)]),
    isDecoder = name === "decoder";
  return {
    ...result.attention[name],
    model: result.model,
    text: result.text,
    isOwn: true,
    kind: name,
    kinds: KINDS,
    rows: name === "encoder" ? source : target,
    columns: isDecoder ? inputs : source,
    possible: isDecoder ? target.map((_, row) => buildCausalRow(row, inputs.length)) : null,
    token: 0,
  };
}

/** Describe how closely a head of the cross-attention follows the diagonal. */
export function describeAlignment({ scores, last, baseline }, { layer, head }) {
  const near = formatPercent(scores[layer][head]),
    uniform = formatPercent(baseline.score);
  return (
    `Layer ${layer + 1}, head ${head + 1}: ${near} of the attention is within one position of ` +
    `the diagonal (uniform attention: ${uniform}), and ${formatPercent(last[layer][head])} is ` +
    "elsewhere on the last source token."
  );
}

function Output({ result }) {
  const selected = Math.min(position.value, result.generated.length - 1),
    row = result.generated[selected];
  return html`<${ModelTokens} tokens=${result.source} />
    <p class="generated-text" role="group" aria-label="Generated tokens">
      ${result.generated.map(
        (each, index) =>
          html`<button
            key=${index}
            type="button"
            class=${"generated-token" + (index === selected ? " selected" : "")}
            style=${{ "--pg-weight": each.probability }}
            title=${formatPercent(each.probability)}
            aria-pressed=${String(index === selected)}
            onClick=${() => (position.value = index)}
          >
            ${readableToken(each.token)}
          </button>`,
      )}
    </p>
    <p class="pg-hint">
      Output of ${shortModelName(result.model)}: “${result.output}”. Select a token to see its
      alternatives.
    </p>
    <${BarList}
      label=${MOST_PROBABLE_TOKENS}
      targetText="generated"
      items=${row.candidates.map(({ token, probability, id }) => ({
        label: readableToken(token),
        value: probability,
        isTarget: id === row.id,
        title: `id ${id}`,
      }))}
    />
    <${Notes} notes=${result.notes} />`;
}

function Alignment({ result }) {
  const { alignment, prefix_tokens: prefix } = result,
    head = selectedHead.value ?? alignment.best;
  return html`<div>
    <h4>Diagonal alignment of the cross-attention</h4>
    <${HeatMapView}
      label="Diagonal alignment of each head"
      data=${{
        rows: alignment.scores.map((_, layer) => `layer ${layer + 1}`),
        columns: alignment.scores[0].map((_, index) => String(index + 1)),
        values: alignment.scores,
      }}
      describe=${(layer, index) => describeAlignment(alignment, { layer, head: index })}
      caption=${describeAlignment(alignment, head)}
      onSelect=${(layer, index) => (selectedHead.value = { layer, head: index })}
    />
    ${
      prefix > 0 &&
      html`<p class="pg-hint">
        The diagonal begins after the ${prefix} tokens that name the task.
      </p>`
    }
  </div>`;
}

function Result({ result }) {
  const options = DISPLAY_OPTIONS.filter(({ value }) => value !== "scores");
  if (display.value === "scores") display.value = "map";
  return html`<${Output} result=${result} />
    <${Alignment} result=${result} />
    <${SegmentedControl}
      label="Display"
      options=${options}
      value=${display.value}
      onChange=${(value) => (display.value = value)}
    />
    <${AttentionPanel}
      index=${0}
      data=${buildPanel(result, kind.value)}
      kind=${kind}
      initial=${kind.value === "cross" ? (selectedHead.value ?? result.alignment.best) : null}
    />`;
}

export const { View: Translation } = createPipeline("translate", {
  kind: "translate",
  fields: [
    modelInput("google-t5/t5-small", "Pretrained encoder-decoder"),
    textArea("text", "Text", "translate English to German: The cat sat on the mat.", {
      maxLength: 1000,
      hint:
        "T5 needs its task before the text. BART and Marian do not. Marian needs the Python " +
        "package sentencepiece on the server.",
    }),
    numberInput("new_tokens", "New tokens", "40", 1, 64),
  ],
  submitLabel: "Translate",
  emptyText: "the output with the probability of each token, and the attention of every head.",
  Result,
});
