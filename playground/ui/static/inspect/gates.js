// The gates and states of a recurrent model.
import { html } from "../vendor/preact.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatNumber } from "../shared/format.js";
import { createOptions, Part } from "./section_parts.js";

const STACKS = [
  { value: "encoder", label: "Encoder", title: "Reads the source" },
  { value: "decoder", label: "Decoder", title: "Reads the target, shifted right" },
];
const CELL_NAMES = { rnn: "plain RNN", gru: "GRU", lstm: "LSTM" };
const { options, choose, update, restore } = createOptions({
  stack: "encoder",
  layer: 0,
  quantity: "",
});

/** Return the rows of the table of means: the tokens, then each gate or state. */
export const meanRows = ({ tokens, quantities }) => [
  { name: "input token", values: tokens },
  ...quantities.map(({ name, means, formula, meaning }) => ({
    name: `${name}, ${meaning.split(":")[0]}`,
    values: means.map((/** @type {number} */ mean) => mean.toFixed(2)),
    title: `${name} = ${formula}; ${meaning}`,
  })),
];

const Means = ({ rows }) =>
  html`<div class="pg-table-box" tabindex="0" role="region" aria-label="Means by position">
    <table class="gates-means">
      <tbody>
        ${rows.map(
          ({ name, values, title }) =>
            html`<tr key=${name} title=${title}>
              <th scope="row">${name}</th>
              ${values.map((value, i) => html`<td key=${i}>${value}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;

export const describeUnit = ({ tokens, quantity, values }, row, column) =>
  `${quantity} of unit ${column} after ${tokens[row]} (position ${row + 1}): ` +
  `${formatNumber(values[row][column])}.`;

function Choices({ data }) {
  const { stack, layer, layers, quantities, quantity } = data;
  return html`<div class="pg-row row">
    ${choose("stack", "Stack", STACKS, stack)}
    ${
      layers > 1 &&
      html`<${SegmentedControl}
        label="Layer"
        options=${Array.from({ length: layers }, (_, i) => ({
          value: String(i),
          label: "layer " + (i + 1),
        }))}
        value=${String(layer)}
        onChange=${(value) => update({ layer: Number(value) })}
      />`
    }
    ${choose(
      "quantity",
      "Gate or state",
      quantities.map(({ name, meaning: title }) => ({ value: name, label: name, title })),
      quantity,
    )}
  </div>`;
}

function Gates({ data }) {
  const { cell, tokens, values, quantities, quantity, is_gate: isGate, of, stack, layer } = data,
    { formula, meaning } = quantities.find(({ name }) => name === quantity),
    isCut = values.length < of[0] || values[0].length < of[1];
  return html`<${Choices} data=${data} />
    <div class="pg-halves parts">
      <${Part}
        isWide
        title=${`Means by position: ${CELL_NAMES[cell]}, ${stack}, layer ${layer + 1}`}
        hint="Each cell reads its input x and its previous hidden state h. The table has the mean
          absolute value over the units of the layer. Gates are between 0 and 1."
      >
        <${Means} rows=${meanRows(data)} />
      <//>
      <${Part} isWide title=${`${quantity} = ${formula}`} hint=${meaning + "."}>
        <${HeatMapView}
          label=${quantity + " by position and unit"}
          data=${{
            rows: tokens,
            columns: values[0].map((_, unit) => String(unit)),
            values,
            isSigned: !isGate,
            max: isGate ? 1 : 0,
            maxCellSize: 18,
          }}
          caption=${
            "Rows: input tokens in order. Columns: units of the hidden state." +
            (isCut
              ? ` Displayed: ${values.length} × ${values[0].length} of ${of.join(" × ")}.`
              : "")
          }
          describe=${(row, column) => describeUnit(data, row, column)}
        />
      <//>
    </div>`;
}

export const gatesSpec = {
  subView: "numbers",
  title: "Gates",
  explain: "Gates and states of the RNN, LSTM or GRU cell at every position.",
  Component: Gates,
  options: () => options.value,
  restoreOptions: restore,
};
