// Token embeddings and position vectors.
import { html, useMemo, useState } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { Select } from "../shared/components/select.js";
import { formatNumber, formatPercent, formatToken } from "../shared/format.js";
import { DECODER_INPUT } from "../shared/strings.js";
import { createOptions, formatTwoDecimals, Part } from "./section_parts.js";

const MAX_NEIGHBORS = 12;
const SIDES = [
  { value: "source", label: "Source", title: "Encoder input" },
  { value: "target", label: "Target", title: DECODER_INPUT },
];
const { options, choose, update, restore } = createOptions({ side: "source", token: "" });

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
  return html`<div class="pg-row row">${choose("side", "Embedding table", SIDES, data.side)}</div>
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
};

// The first two principal components of the token embeddings.

const WIDTH = 560,
  HEIGHT = 380,
  MARGIN = 38,
  LINE_HEIGHT = 15,
  CHARACTER_WIDTH = 9;
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

/** Both components have the same scale. @param {[number, number][]} points */
export function layoutPoints(points) {
  const ranges = [0, 1].map((axis) => {
    const values = points.map((point) => point[axis]);
    return [Math.min(...values), Math.max(...values)];
  });
  const [[left, right], [bottom, top]] = ranges,
    scale = Math.min(
      (WIDTH - 2 * MARGIN) / (right - left || 1),
      (HEIGHT - 2 * MARGIN) / (top - bottom || 1),
    );
  return points.map(([x, y]) => [
    WIDTH / 2 + (x - (left + right) / 2) * scale,
    HEIGHT / 2 - (y - (bottom + top) / 2) * scale,
  ]);
}

/** @param {number[][]} points @param {string[]} names */
export function separateNames(points, names) {
  const order = points.map((_, i) => i).sort((i, j) => points[i][1] - points[j][1]),
    placed = /** @type {number[]} */ ([]),
    separated = points.map((point) => [...point]);
  for (const i of order) {
    const [x] = separated[i],
      above = placed.filter((j) => {
        const width = ((names[i].length + names[j].length) / 2) * CHARACTER_WIDTH;
        return Math.abs(separated[j][0] - x) < width;
      }),
      lowest = Math.max(...above.map((j) => separated[j][1] + LINE_HEIGHT));
    separated[i][1] = Math.max(separated[i][1], lowest);
    placed.push(i);
  }
  return separated;
}

/** A token is selected by a click, or by the arrow keys and Enter. */
function Projection({ data: { map, side, token, positions }, onSelect }) {
  const [active, setActive] = useState(/** @type {string | null} */ (null)),
    points = separateNames(layoutPoints(map.coordinates), map.names),
    index = map.names.indexOf(active ?? token),
    [x, y] = map.coordinates[index] ?? [0, 0],
    text =
      `${map.names[index]} is at ${formatNumber(x)}, ${formatNumber(y)}. Click a token, or ` +
      "select it with the arrow keys and Enter, to see its nearest tokens.";
  const onKeyDown = (event) => {
    const offset = STEPS[event.key],
      n = map.names.length;
    if (event.key === "Enter" && active) onSelect(active);
    if (!offset) return;
    event.preventDefault();
    setActive(map.names[(map.names.indexOf(active ?? token) + offset + n) % n]);
  };
  const [first, second] = map.explained_variance.map(formatPercent);
  return html`<${Part}
    title="PCA of the token embeddings"
    hint=${
      `The first two principal components of the ${side} embeddings explain ${first} and ` +
      `${second} of the variance. Tokens that are close here may differ in the other ` +
      `${Math.max(0, positions.of[1] - 2)} dimensions.`
    }
  >
    <svg
      class="embeddings-projection"
      viewBox=${`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      tabindex="0"
      aria-label=${"Projection of the embeddings. " + text}
      onKeyDown=${onKeyDown}
      onPointerLeave=${() => setActive(null)}
      onBlur=${() => setActive(null)}
    >
      <text class="axis" x=${WIDTH - 8} y=${HEIGHT - 8} text-anchor="end">
        component 1, ${first}
      </text>
      <text class="axis" transform="translate(14 8) rotate(-90)" text-anchor="end">
        component 2, ${second}
      </text>
      ${map.names.map(
        (name, i) =>
          html`<text
            key=${name}
            class=${name === active ? "active" : name === token ? "selected" : ""}
            x=${points[i][0]}
            y=${points[i][1]}
            onPointerEnter=${() => setActive(name)}
            onClick=${() => onSelect(name)}
          >
            ${formatToken(name)}
          </text>`,
      )}
    </svg>
    <p class="pg-quiet" aria-live="polite">${text}</p>
  <//>`;
}
