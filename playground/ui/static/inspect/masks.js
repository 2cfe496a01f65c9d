// Masks and shapes: the masks of attention, the masked softmax, and four types of attention.
import { html } from "../vendor/preact.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatMessage, formatNumber } from "../shared/format.js";
import { describeCell } from "./attention.js";
import { createOptions } from "./options.js";
import { ParameterCounts, QuadraticCost, Shapes } from "./parameter_counts.js";
import { Part, RowTable } from "./part.js";

const TYPING_DELAY_MS = 150;
const { options, set, update, restore, pick } = createOptions("sizes", {
  scores: /** @type {string | null} */ (null),
  tokens: /** @type {string | null} */ (null),
  lengths: "",
  layer: 0,
  of: "model",
  measure: "no",
  head: 0,
});
const TYPE_CAPTIONS = {
  bidirectional: "Source attends to source.",
  causal: "Source attends to source, with a causal mask.",
  cross: "Decoder input attends to source.",
  "multi-head": "Source attends to source, in each head of the model.",
};

function PaddingMask({ names, tokens, mask, added, changed }) {
  const isOff = mask.map((value) => !value);
  return html`<${Part}
    title="Padding mask"
    hint="Sequences of a batch are padded to equal length with PAD, token id 0. The mask is 1 for
      tokens that may be attended to."
  >
    <${RowTable}
      label="Padding mask"
      rows=${[
        { name: "your sequence", values: names, isOff },
        { name: "token id", values: tokens, isOff },
        { name: "mask", values: mask, isOff },
      ]}
    />
    <p class="hint">
      ${
        added
          ? `With ${formatCount(added, "position")} of padding, no logit changes by more than ` +
            `${formatNumber(changed)} (rounding): padding has no effect.`
          : "This sequence has the maximum length of the model, so no padding can be added."
      }
    </p>
  <//>`;
}

function CausalMask({ names, mask }) {
  return html`<${Part}
    title="Causal mask"
    hint="In training, all target positions are computed in parallel. A position (row) may attend
      only to itself and to earlier positions (columns); otherwise it could copy the token that it
      must predict."
  >
    <${HeatMapView}
      label="Causal mask"
      data=${{ rows: names, columns: names, values: mask, mask, maxCellSize: 26 }}
      caption="Rows: queries. Columns: keys. Masked positions are hatched."
      describe=${(row, column) =>
        `${names[row]} (position ${row + 1}) may attend to ${names[column]} (position ` +
        `${column + 1}).`}
    />
  <//>`;
}

/** The masks of token ids that the user enters. */
function TypedMasks({ typed }) {
  const { input, error, tokens, padding, allowed, weights } = typed,
    isOff = padding?.map((value) => !value);
  return html`<${Part}
    title="Both masks, for your token ids"
    hint="Type token ids; 0 is padding. The decoder combines both masks. With equal scores, the
      softmax divides the attention equally among the allowed keys."
  >
    <input
      class="sizes-tokens"
      type="text"
      maxlength="300"
      spellcheck=${false}
      aria-label="Token ids"
      aria-invalid=${String(Boolean(error))}
      value=${options.value.tokens ?? input}
      onInput=${(event) => update({ tokens: event.currentTarget.value }, TYPING_DELAY_MS)}
    />
    <${StatusMessage} class="tokens-problem" kind="error" text=${formatMessage(error)} />
    ${
      !error &&
      html`<${RowTable}
          label="Padding mask of the token ids"
          rows=${[
            { name: "token id", values: tokens, isOff },
            { name: "padding mask", values: padding, isOff },
          ]}
        />
        <${HeatMapView}
          label="Weights of equal scores"
          data=${{
            rows: tokens.map(String),
            columns: tokens.map(String),
            values: weights,
            mask: allowed,
            maxCellSize: 30,
          }}
          caption="Rows: queries. Columns: keys. Masked positions are hatched."
          describe=${(row, column) =>
            describeCell({ rows: tokens, columns: tokens }, weights, row, column)}
        />`
    }
  <//>`;
}

/** Return the rows of the softmax table: scores, and the softmax without and with the mask. */
export function softmaxRows({ scores, is_token: isToken, unmasked, masked }) {
  const format = (values) => values.map((value) => (value === 0 ? "0" : value.toFixed(4)));
  return scores.flatMap((row, r) => {
    const isOff = isToken[r].map((value) => !value);
    return [
      { name: scores.length > 1 ? `scores ${r + 1}` : "scores", values: row, isOff },
      { name: "without the mask", values: format(unmasked[r]) },
      { name: "with the mask", values: format(masked[r]), isOff },
    ];
  });
}

/** Compare with what a tutorial prints (source D of docs/sources.md); "" for other scores. */
export function describePublishedSoftmax({ published, ...result }) {
  if (!published) return "";
  const isEqual = ["unmasked", "masked"].every((name) =>
    result[name].flat().every((value, i) => Math.abs(value - published[name].flat()[i]) < 1e-4),
  );
  return isEqual
    ? "These are the scores of a tutorial on masks in Keras, which prints the same values."
    : "These are the scores of a tutorial on masks in Keras, which prints other values.";
}

function MaskedSoftmax({ result }) {
  const rows = result.error ? [] : softmaxRows(result);
  return html`<${Part}
    title="Softmax without and with the mask"
    hint="Type one row of scores per line; zeros are padding. Without a mask, padding receives
      attention."
  >
    <textarea
      class="sizes-scores"
      rows="3"
      spellcheck=${false}
      maxlength="2000"
      aria-label="Scores, one row per line"
      value=${options.value.scores ?? result.input}
      onInput=${(event) => update({ scores: event.currentTarget.value }, TYPING_DELAY_MS)}
    ></textarea>
    <${StatusMessage} class="sizes-problem" kind="error" text=${formatMessage(result.error)} />
    ${!result.error && html`<${RowTable} class="softmax" label="Softmax" rows=${rows} />`}
    <p class="hint">${!result.error && describePublishedSoftmax(result)}</p>
  <//>`;
}

/** Numbered options of a control: 1 to n for the values 0 to n - 1. */
const numbered = (n) =>
  Array.from({ length: n }, (_, i) => ({ value: String(i), label: String(i + 1) }));

function AttentionType({ name, rows, columns, possible, heads, of }) {
  const hasHeads = name === "multi-head" && heads.length > 1,
    head = hasHeads ? Math.min(options.value.head, heads.length - 1) : 0,
    values = heads[head],
    cut = of[1] > values.length ? ` The first ${values.length} of ${of[1]} tokens.` : "";
  return html`<div>
    <h5>${name}</h5>
    <${HeatMapView}
      label=${name + " attention"}
      data=${{ rows, columns, values, mask: possible, maxCellSize: 30 }}
      caption=${TYPE_CAPTIONS[name] + cut}
      describe=${(row, column) => describeCell({ rows, columns }, values, row, column)}
    />
    ${
      hasHeads &&
      html`<${SegmentedControl}
        label="Head"
        options=${numbered(heads.length)}
        value=${String(head)}
        onChange=${(value) => set({ head: Number(value) })}
      />`
    }
  </div>`;
}

function AttentionTypes({ kinds, layer, layers }) {
  return html`<${Part}
    size="wide"
    title="Four types of attention, on your sequence"
    hint="With the projections of one layer: bidirectional, causal, cross-attention, and
      bidirectional with all heads of the model. The first three use a single head of size d_model."
  >
    ${
      layers > 1 &&
      html`<div class="row">
        <span class="hint">layer</span>
        <${SegmentedControl}
          label="Layer"
          options=${numbered(layers)}
          value=${String(layer)}
          onChange=${(value) => update({ layer: Number(value) })}
        />
      </div>`
    }
    <div class="attention-types">
      ${kinds.map((kind) => html`<${AttentionType} key=${kind.name} ...${kind} />`)}
    </div>
  <//>`;
}

const Masks = ({ data }) =>
  html`<div class="parts">
    <${PaddingMask} ...${data.padding} />
    <${MaskedSoftmax} result=${data.softmax} />
    <${CausalMask} ...${data.causal} />
    <${TypedMasks} typed=${data.typed} />
    <${Shapes} ...${data} />
    <${AttentionTypes} ...${data} />
    <${ParameterCounts} parameters=${data.parameters} onSelect=${(of) => update({ of })} />
    <${QuadraticCost}
      data=${data}
      lengths=${options.value.lengths}
      onType=${(lengths) => update({ lengths }, TYPING_DELAY_MS)}
      onMeasure=${() => update({ measure: "yes" })}
    />
  </div>`;

export const masksSpec = {
  title: "Masks and shapes",
  explain:
    "Attention masks, the masked softmax, parameter counts and the memory of attention weights, " +
    "for your sequence and this model.",
  Component: Masks,
  options: () => pick("layer", "of", "measure", "scores", "tokens", "lengths"),
  restoreOptions: restore,
  rows: (data) =>
    data.parameters.rows.map(([part, ours, torch, why, formula, location, purpose]) => ({
      part,
      location,
      purpose,
      formula,
      ours,
      "nn.Transformer": torch,
      why,
    })),
};
