// Token embeddings and position vectors.
import { html, useMemo } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { Select } from "../shared/components/select.js";
import { formatNumber, formatToken } from "../shared/format.js";
import { DECODER_INPUT } from "../shared/strings.js";
import { formatTwoDecimals } from "./cells.js";
import { Projection } from "./embedding_projection.js";
import { createOptions } from "./options.js";
import { Part } from "./part.js";

const MAX_NEIGHBORS = 12;
const SIDES = [
  { value: "source", label: "Source", title: "Encoder input" },
  { value: "target", label: "Target", title: DECODER_INPUT },
];
const { options, update, restore } = createOptions({ side: "source", token: "" });

function NearestTokens({ data, onSelect }) {
  const items = data.nearest
    .slice(0, MAX_NEIGHBORS)
    .map(([label, value]) => ({ label, value, isTarget: label === data.token }));
  return html`<${Part}
    title="Nearest tokens (cosine)"
    hint="Cosine similarity of token embeddings: 1 is the same direction, 0 orthogonal, −1 opposite.
      A task that treats all symbols alike, such as reversal, does not require any two of them to
      be close."
  >
    <div class="pg-row row">
      <${Select}
        label="token"
        class="embeddings-token"
        options=${data.tokens.map((name) => ({ value: name, label: formatToken(name) }))}
        value=${data.token}
        onChange=${onSelect}
      />
    </div>
    <${BarList}
      label=${"Tokens nearest to " + data.token}
      items=${items}
      format=${formatTwoDecimals}
    />
  <//>`;
}

// Positions count from 1, dimensions from 0.
const range = (n, first) => Array.from({ length: n }, (_, i) => String(first + i));

function PositionVectors({ data: { side, positions } }) {
  const { weights, description, of, rms, token_rms: tokenRms } = positions,
    max = useMemo(() => Math.max(...weights.flat().map(Math.abs)), [weights]);
  if (!weights.length)
    return html`<${Part} title="Position vectors of this model" hint=${description} />`;
  const isCut = weights.length < of[0] || weights[0].length < of[1],
    cut = isCut
      ? ` Displayed: the first ${weights.length} of ${of[0]} positions, ${weights[0].length} of ` +
        `${of[1]} dimensions.`
      : "";
  return html`<${Part}
    isWide
    title="Position vectors of this model"
    hint=${
      `Added to the token embedding; one row per position, ${description}. RMS (root mean ` +
      `square) of a position vector: ${formatNumber(rms)}; of a token embedding: ` +
      `${formatNumber(tokenRms)}. If token embeddings are much larger, the model learns the ` +
      "positions much more slowly: the bug “Embeddings too large” in Learn measures that."
    }
  >
    <${HeatMapView}
      label="Position vectors"
      data=${{
        rows: range(weights.length, 1),
        columns: range(weights[0].length, 0),
        values: weights,
        isSigned: true,
        max,
        maxCellSize: 18,
      }}
      caption=${`Rows: positions of the ${side}. Columns: dimensions.${cut}`}
      describe=${(row, column) =>
        `Position ${row + 1}, dimension ${column}: ${weights[row][column]}.`}
    />
  <//>`;
}

function Embeddings({ data }) {
  const selectToken = (token) => update({ token });
  return html`<div class="pg-row row">
      <${SegmentedControl}
        label="Embedding table"
        options=${SIDES}
        value=${data.side}
        onChange=${(side) => update({ side })}
      />
    </div>
    <div class="pg-halves parts">
      <${NearestTokens} data=${data} onSelect=${selectToken} />
      <${Projection} data=${data} onSelect=${selectToken} />
      <${PositionVectors} data=${data} />
    </div>`;
}

export const embeddingsSpec = {
  subView: "numbers",
  title: "Embeddings",
  explain: "Token embeddings and position vectors of this model; their sum enters the first layer.",
  Component: Embeddings,
  options: () => options.value,
  restoreOptions: restore,
  rows: (data) =>
    data.nearest.map(([other, cosine]) => ({
      side: data.side,
      token: data.token,
      other,
      cosine,
    })),
};
