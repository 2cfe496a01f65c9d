// Position vectors of the model, and sinusoidal positions.
import { html, useMemo } from "../vendor/preact.js";
import { NumberField } from "../shared/components/form.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { LineChart } from "../shared/components/line_chart.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatInteger, formatNumber } from "../shared/format.js";
import { Part, RowTable } from "./part.js";

// Positions count from 1, dimensions from 0.
const range = (n, first) => Array.from({ length: n }, (_, i) => String(first + i));

export function PositionVectors({ data: { side, positions } }) {
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
    size="wide"
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

/** Return the wavelength of a dimension in positions. */
export const wavelengthOf = (dimension, width) =>
  2 * Math.PI * 10000 ** ((2 * Math.floor(dimension / 2)) / width);

export function Sinusoids({ sinusoids: { weights, sizes, size, positions, width }, onSelect }) {
  // The response has a row for each dimension.
  const values = useMemo(() => weights[0].map((_, p) => weights.map((row) => row[p])), [weights]);
  const describe = (row, column) =>
    `Position ${row + 1}, dimension ${column}: ${values[row][column]}. Wavelength: ` +
    `${formatNumber(wavelengthOf(column, width))} positions.`;
  return html`<${Part}
    size="tall"
    title="Sinusoidal positional encoding"
    hint="Each dimension is a sine or cosine wave over the positions. Wavelengths increase with the
      dimension. Position 1 has pos = 0 in the paper’s formula."
  >
    <div class="row">
      <${SegmentedControl}
        label="Positions and dimensions"
        options=${sizes.map((name) => ({ value: name, label: name.replace("x", "×") }))}
        value=${size}
        onChange=${onSelect}
      />
    </div>
    <${HeatMapView}
      label="Sinusoidal positions"
      data=${{
        rows: range(positions, 1),
        columns: range(width, 0),
        values,
        isSigned: true,
        max: 1,
        maxCellSize: positions > 99 ? 6 : 9,
      }}
      caption="Rows: positions. Columns: dimensions, the even ones sines, the odd ones cosines."
      describe=${describe}
    />
  <//>`;
}

/** Return the rows of the table of independence. @param {any[][]} independence */
export const independenceRows = (independence) => [
  { name: "positions", values: ["directions", "smallest distance"] },
  ...independence.map(([positions, directions, nearest, offset]) => ({
    name: formatInteger(positions),
    values: [`${directions} of 64`, `${formatNumber(nearest)}, at offset ${offset}`],
  })),
];

export const PositionIndependence = ({ independence }) =>
  html`<${Part}
    title="Are sinusoidal positions independent?"
    hint="A tutorial calls positions up to 10000 · 2π practically linearly independent.
      With d_model 64, at most 64 vectors are independent. The table counts the directions whose
      singular value is above a thousandth of the largest. All vectors are different, which is what
      the model needs: the smallest distance is the same in every row."
  >
    <${RowTable}
      class="embeddings-independence"
      label="Independence of positions"
      rows=${independenceRows(independence)}
    />
  <//>`;

const CHART = {
  label: "Value",
  xLabel: "position",
  height: 190,
  yRange: /** @type {[number, number]} */ ([-1, 1]),
  formatX: formatInteger,
};

/** Describe the wavelength in a tutorial (docs/sources.md). @param {number | null} published */
export const describePublished = (published) =>
  published === null ? "" : `about ${published} in a tutorial`;

export function SinusoidDimensions({ data: { dimensions, sinusoids }, dimension, onChange }) {
  const series = useMemo(
    () =>
      dimensions.map(({ dimension: at, values }, i) => ({
        key: i + " " + at,
        label: "dimension " + at,
        x: values.map((_, i) => i + 1),
        y: values,
        color: i,
      })),
    [dimensions],
  );
  return html`<${Part}
    title="Single dimensions"
    hint="Short waves distinguish adjacent positions; long waves encode the approximate position.
      The table has the wavelengths. The tutorial reads its values off a figure."
  >
    <${NumberField}
      class="embeddings-dimension"
      label="Third dimension"
      min=${0}
      max=${sinusoids.width - 1}
      isInteger
      value=${dimension}
      onChange=${onChange}
    />
    <${LineChart} series=${series} options=${CHART} />
    <${RowTable}
      class="embeddings-wavelengths"
      label="Wavelengths"
      rows=${dimensions.map(({ dimension: at, wavelength, published }) => ({
        name: `dimension ${at} of ${sinusoids.width}`,
        values: [`${formatNumber(wavelength)} positions`, describePublished(published)],
        title: `2π · 10000^(${2 * Math.floor(at / 2)}/${sinusoids.width}) = ${wavelength}`,
      }))}
    />
  <//>`;
}
