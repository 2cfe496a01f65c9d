// Activation patching: the causal effect of each head on one pair of inputs.
import { html, signal, useEffect } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { Select } from "../shared/components/select.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { formatSigned, formatTwoDecimals, shade, barColumn } from "./section_parts.js";
import { headOrder, shortHeadName } from "./head_roles.js";
import { requestView } from "./requests.js";

const NO_CHOICE = { position: 0, token: "" };
const choice = signal(NO_CHOICE);
const patching = new Resource((position, replacement) =>
  requestView("patch", { source_position: position, replacement }),
);

/** Return the position and the replacement token, within what the sequence and the task have. */
export function selectCorruption({ source, vocabulary }, { position, token }) {
  const at = Math.min(position, source.length - 2),
    clean = source[at],
    isValid = vocabulary.includes(token) && token !== clean,
    next = vocabulary[(vocabulary.indexOf(clean) + 1) % vocabulary.length];
  return { position: at, token: isValid ? token : next };
}

function describePatching(result) {
  const { position, clean_token: clean, corrupted_token: corrupted } = result;
  return (
    `With ${result.corrupted_source.join(" ")}, the target at position ${position + 1} is ` +
    `${corrupted} instead of ${clean}. Logit of ${clean} minus logit of ${corrupted}: ` +
    `${formatSigned(result.clean_logit_diff)} clean, ` +
    `${formatSigned(result.corrupted_logit_diff)} corrupted. The bars show the fraction of ` +
    "this difference that patching each head recovers, for this one pair. Fractions need not " +
    "sum to 1, because heads depend on each other."
  );
}

/** Load the result for the selected corruption, and again for another response. */
function usePatching(response, { position, token }) {
  useEffect(() => {
    patching.load(position, token);
  }, [response.step, response.source.join(" "), position, token]);
  return { data: patching.data.value, error: patching.error.value };
}

function RecoveredTable({ heads }) {
  const columns = [
    { key: "head", label: "head", value: headOrder, render: shortHeadName },
    barColumn("fraction recovered", heads, (head) => head.recovered_fraction, 1),
    {
      key: "recovered_fraction",
      label: "fraction",
      isNumber: true,
      render: (head) => formatTwoDecimals(head.recovered_fraction),
    },
  ];
  return html`<${DataTable}
    caption="Recovered fraction by head"
    class="patching-table picture"
    columns=${columns}
    rows=${heads}
    sortKey="recovered_fraction"
  />`;
}

const DIRECTIONS = [
  { value: "restored", label: "clean into corrupted" },
  { value: "lost", label: "corrupted into clean" },
];
const direction = signal("restored");

/** The effect of the vector after each layer, at each position, averaged over pairs. */
function LayerTables({ data }) {
  const isRestored = direction.value === "restored";
  return html`<h4 class="lens-title">By layer and position</h4>
    <div class="pg-row row">
      <${SegmentedControl} label="direction" options=${DIRECTIONS} of=${direction} />
    </div>
    <p class="caption pg-quiet">
      ${
        `The vector after one layer, at one position, is taken from the ` +
        `${isRestored ? "clean" : "corrupted"} run. A cell is the fraction of the difference ` +
        `that ${isRestored ? "returns" : "is lost"}, over ${data.pairs} ` +
        `${data.pairs === 1 ? "pair" : "pairs of unseen sequences of this length"}.`
      }
    </p>
    ${data.layers.map(({ side, rows, restored, lost }) => {
      const values = isRestored ? restored : lost;
      return html`<div key=${side} class="pg-table-box">
        <table class="lens-table patching-layers picture">
          <thead>
            <tr>
              <th scope="row">${side === "source" ? "input position" : "output position"}</th>
              ${values[0].map((_, i) => html`<th key=${i} scope="col">${i + 1}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${rows.map(
              (name, i) =>
                html`<tr key=${name}>
                  <th scope="row">${name}</th>
                  ${values[i].map(
                    (value, at) =>
                      html`<td key=${at} style=${shade(value)}>${formatTwoDecimals(value)}</td>`,
                  )}
                </tr>`,
            )}
          </tbody>
        </table>
      </div>`;
    })}`;
}

function Patching({ data: response }) {
  const selected = selectCorruption(response, choice.value),
    { data, error } = usePatching(response, selected),
    clean = response.source[selected.position];
  const positions = response.source
    .slice(0, -1)
    .map((token, i) => ({ value: String(i), label: `${token} at position ${i + 1}` }));
  const tokens = response.vocabulary
    .filter((token) => token !== clean)
    .map((token) => ({ value: token, label: token }));
  return html`<div class="pg-row row">
      <${Select}
        label="replace"
        class="patching-position"
        options=${positions}
        value=${String(selected.position)}
        onChange=${(position) => (choice.value = { position: Number(position), token: "" })}
      />
      <${Select}
        label="with"
        class="patching-token"
        options=${tokens}
        value=${selected.token}
        onChange=${(token) => (choice.value = { ...selected, token })}
      />
    </div>
    <${StatusMessage}
      class="patching-message"
      kind=${error ? "error" : "info"}
      text=${error ? formatMessage(error) : data ? describePatching(data) : ""}
    />
    ${data && html`<${RecoveredTable} heads=${data.heads} /><${LayerTables} data=${data} />`}`;
}

export const patchingSpec = {
  subView: "matters",
  title: "Patching",
  explain:
    "Activation patching. The clean input is your sequence; the corrupted input has another " +
    "token at one position. The output of one head on the clean input replaces its output on the " +
    "corrupted input. Below, the vectors between the layers are exchanged instead, in both " +
    "directions.",
  request: "output",
  Component: Patching,
  reset() {
    choice.value = NO_CHOICE;
    patching.clear();
  },
  options: () => choice.value,
  restoreOptions({ position, token }) {
    if (Number.isInteger(position) && position >= 0)
      choice.value = { position, token: String(token ?? "") };
  },
  exportData: (response) => ({ own: response, patching: patching.data.peek() }),
};
