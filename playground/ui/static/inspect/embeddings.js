// Token embeddings and position vectors.
import { html } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { renderOptions } from "../shared/components/model_select.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage, formatNumber } from "../shared/format.js";
import { DECODER_INPUT } from "../shared/strings.js";
import { formatTwoDecimals } from "./cells.js";
import { Projection } from "./embedding_projection.js";
import { createOptions } from "./options.js";
import { Part, RowTable } from "./part.js";
import {
  PositionIndependence,
  PositionVectors,
  SinusoidDimensions,
  Sinusoids,
} from "./position_embeddings.js";

const TYPING_DELAY_MS = 150;
const MAX_NEIGHBORS = 12;
const DISTANCE_TITLE =
  "Hausdorff distance: the largest distance of a vector in one set to the nearest vector in the " +
  "other set";
const SIDES = [
  { value: "source", label: "Source", title: "Encoder input" },
  { value: "target", label: "Target", title: DECODER_INPUT },
];
const { options, update, restore, pick } = createOptions("embeddings", {
  side: "source",
  token: "",
  sinusoids: "50 x 64",
  dimension: 30,
  first: /** @type {string | null} */ (null),
  second: /** @type {string | null} */ (null),
});

function NearestTokens({ data, onSelect }) {
  const items = data.nearest
    .slice(0, MAX_NEIGHBORS)
    .map(([label, value]) => ({ label, value, isTarget: label === data.token }));
  return html`<${Part}
    title="Nearest tokens (cosine)"
    hint="Cosine similarity of token embeddings: 1 is the same direction, 0 orthogonal, −1 opposite.
      Reversal treats all digits alike, so no two of them need to be close."
  >
    <div class="row">
      <label>
        token
        <select class="embeddings-token" onChange=${(event) => onSelect(event.currentTarget.value)}>
          ${renderOptions(
            data.tokens.map((name) => ({ value: name, label: name })),
            data.token,
          )}
        </select>
      </label>
    </div>
    <${BarList}
      label=${"Tokens nearest to " + data.token}
      items=${items}
      format=${formatTwoDecimals}
    />
  <//>`;
}

/** Return the rows of the table that compares two sentences. */
export function orderRows({ words, without, with: withPositions }) {
  const distance = (value) => formatNumber(value) + (value ? "" : ": the same set of vectors");
  return [
    { name: "words of the first sentence, sorted", values: [words[0].join(" ")] },
    { name: "words of the second sentence, sorted", values: [words[1].join(" ")] },
    {
      name: "distance without positions",
      values: [distance(without)],
      title: DISTANCE_TITLE,
    },
    {
      name: "distance with positions",
      values: [distance(withPositions)],
      title: DISTANCE_TITLE,
    },
  ];
}

function WordOrder({ order }) {
  const renderSentence = (name, i) =>
    html`<input
      type="text"
      class=${"embeddings-" + name}
      maxlength="400"
      spellcheck=${false}
      autocomplete="off"
      aria-label=${name + " sentence"}
      value=${options.value[name] ?? order.sentences[i]}
      onInput=${(event) => update({ [name]: event.currentTarget.value }, TYPING_DELAY_MS)}
    />`;
  return html`<${Part}
    title="Why order matters"
    hint="Without position vectors, two sentences with the same words are the same set of vectors;
      with position vectors they differ. Words have random vectors, positions are sinusoidal."
  >
    <div class="sentences">${["first", "second"].map(renderSentence)}</div>
    <${StatusMessage} kind="error" text=${formatMessage(order.error)} />
    ${
      !order.error &&
      html`<${RowTable}
        class="embeddings-distance"
        label="Distance of the two sentences"
        rows=${orderRows(order)}
      />`
    }
  <//>`;
}

function Embeddings({ data }) {
  const selectToken = (token) => update({ token });
  return html`<div class="row">
      <${SegmentedControl}
        label="Embedding table"
        options=${SIDES}
        value=${data.side}
        onChange=${(side) => update({ side })}
      />
    </div>
    <div class="parts">
      <${NearestTokens} data=${data} onSelect=${selectToken} />
      <${Projection} data=${data} onSelect=${selectToken} />
      <${PositionVectors} data=${data} />
      <${Sinusoids}
        sinusoids=${data.sinusoids}
        onSelect=${(sinusoids) =>
          update({
            sinusoids,
            dimension: Math.min(options.value.dimension, Number(sinusoids.split(" ")[2]) - 1),
          })}
      />
      <${SinusoidDimensions}
        data=${data}
        dimension=${options.value.dimension}
        onChange=${(dimension) => update({ dimension }, TYPING_DELAY_MS)}
      />
      <${PositionIndependence} independence=${data.independence} />
      <${WordOrder} order=${data.order} />
    </div>`;
}

export const embeddingsSpec = {
  title: "Embeddings and positions",
  explain:
    "Token embeddings and position vectors; their sum is the input of the first layer. Learned " +
    "vectors belong to this model; sinusoidal vectors are those of the paper.",
  Component: Embeddings,
  options: () => pick("side", "token", "sinusoids", "dimension", "first", "second"),
  restoreOptions: restore,
  rows: (data) =>
    data.nearest.map(([other, cosine]) => ({
      side: data.side,
      token: data.token,
      other,
      cosine,
    })),
};
