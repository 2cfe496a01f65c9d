// Logit lens, and the direct logit attribution of the selected position.
import { html, signal, useEffect, useState } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { Select } from "../shared/components/select.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage, formatPercent, formatToken } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { formatSigned, shade, SignedBar } from "./cells.js";
import { requestView } from "./requests.js";

const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
});
const NO_SELECTION = {
  /** @type {[number | null, number]} layer and position; null for the last layer */
  cell: [null, 0],
  /** @type {string | null} null for the target */
  token: null,
  /** @type {string | null} null for the most probable other token, empty for none */
  baseline: null,
};
const selection = signal(NO_SELECTION);
const attribution = new Resource((options) => requestView("contributions", options));

const select = (changes) => {
  selection.value = { ...selection.value, ...changes };
};

/** Return the selected layer and position, within the bounds of a result. @param {any} data */
function selectedCell(data) {
  const [layer, position] = selection.value.cell,
    last = data.layers.length - 1;
  return [Math.min(layer ?? last, last), Math.min(position, data.labels.length - 1)];
}

function selectCell(layer, position) {
  const isOtherPosition = position !== selection.value.cell[1];
  select({ cell: [layer, position], ...(isOtherPosition && { token: null, baseline: null }) });
}

export function describeCell(data, layer, position) {
  const layerText = layer ? "After " + data.layers[layer] : "Before the first layer",
    tokens = data.candidates[layer][position].map(([name, p]) => `${name} (${formatPercent(p)})`),
    target = data.target ? "Target: " : "The target is unknown; the model generated ";
  return (
    `${layerText}, position ${position + 1}: ${tokens.join(", ")}. ${target}` +
    `${data.labels[position]}, with probability ` +
    `${formatPercent(data.target_probability[layer][position])}.`
  );
}

export function describeAttribution({ token, baseline_token: baseline, position, sum, logit }) {
  const difference = token + (baseline === null ? "" : " minus " + baseline);
  return (
    `Position ${position + 1}: the contributions sum to ${formatSigned(sum)}; the model's logit ` +
    `of ${difference} is ${formatSigned(logit)}. The scale of the final norm is fixed, so the ` +
    "bars decompose the logit; they do not show the effect of an ablation." +
    (baseline === null
      ? " The softmax ignores a constant in all logits, so a single logit has little meaning."
      : "")
  );
}

/** The most probable token after each layer, at each position. The arrow keys move. */
function Lens({ data }) {
  const [hovered, setHovered] = useState(/** @type {[number, number] | null} */ (null)),
    [layer, position] = selectedCell(data),
    columnClass = (t) => (t === position ? "lens-column" : "");
  const onKeyDown = (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const row = event.currentTarget.querySelectorAll("tbody tr")[layer + step[0]];
    row?.querySelectorAll("td")[position + step[1]]?.focus();
  };
  const headings = [
    ["position", data.labels.map((_, t) => t + 1)],
    ["input", data.decoder_input],
    [data.target ? "target" : "output", data.labels],
  ];
  const renderCell = (l, t) => {
    const [token, probability] = data.candidates[l][t][0],
      isSelected = l === layer && t === position;
    return html`<td
      key=${t}
      class=${`lens-cell ${columnClass(t)} ${token === data.labels[t] ? "lens-correct" : ""}`}
      style=${shade(probability)}
      tabindex=${isSelected ? 0 : -1}
      aria-label=${describeCell(data, l, t)}
      onFocusIn=${() => selectCell(l, t)}
      onPointerEnter=${() => setHovered([l, t])}
      onPointerLeave=${() => setHovered(null)}
    >
      ${formatToken(token)}
    </td>`;
  };
  return html`<div class="pg-table-box">
      <table class="lens-table picture" onKeyDown=${onKeyDown}>
        <thead>
          ${headings.map(
            ([name, cells]) =>
              html`<tr key=${name}>
                <th scope="row">${name}</th>
                ${cells.map(
                  (text, t) => html`<th key=${t} scope="col" class=${columnClass(t)}>${text}</th>`,
                )}
              </tr>`,
          )}
        </thead>
        <tbody>
          ${data.layers.map(
            (name, l) =>
              html`<tr key=${name}>
                <th scope="row">${name}</th>
                ${data.labels.map((_, t) => renderCell(l, t))}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="caption pg-quiet">${describeCell(data, ...(hovered ?? [layer, position]))}</p>`;
}

/** Load the attribution of the selected position whenever the selection changes. */
function useAttribution(data) {
  const { token, baseline } = selection.value,
    position = selectedCell(data)[1];
  useEffect(() => {
    const options = {
      position,
      ...(token !== null && { token }),
      ...(baseline !== null && { baseline_token: baseline }),
    };
    attribution.load(options);
  }, [data, position, token, baseline]);
  const error = attribution.error.value;
  // a post-norm model has no attribution; after other errors, the last one stays
  return { data: /post-norm/.test(error) ? null : attribution.data.value, error };
}

function Attribution({ data: lens }) {
  const { data, error } = useAttribution(lens);
  return html`<h4 class="lens-title">Direct logit attribution</h4>
    ${data && html`<${TokenSelects} lens=${lens} attribution=${data} />`}
    <${StatusMessage}
      class="lens-message"
      kind=${error && data ? "error" : "info"}
      text=${error ? formatMessage(error) : data ? describeAttribution(data) : ""}
    />
    ${data && html`<${Contributions} rows=${data.contributions} />`}`;
}

const RUNNER_UP = "runner up"; // no token has a space

function TokenSelects({ lens, attribution: { token, position, runner_up: runnerUp } }) {
  const target = lens.target ? lens.labels[position] : null,
    toOption = (name) => ({ value: name, label: formatToken(name) }),
    { baseline } = selection.value;
  return html`<div class="pg-row row">
    <${Select}
      label="token"
      class="lens-token"
      options=${lens.vocabulary.map((name) => ({
        value: name,
        label: formatToken(name) + (name === target ? " (target)" : ""),
      }))}
      value=${token}
      onChange=${(next) => select({ token: next, baseline: baseline === next ? null : baseline })}
    />
    <${Select}
      label="minus"
      class="lens-baseline"
      options=${[
        { value: RUNNER_UP, label: runnerUp + " (runner-up)" },
        { value: "", label: "none" },
        ...lens.vocabulary.filter((name) => name !== token).map(toOption),
      ]}
      value=${baseline ?? RUNNER_UP}
      onChange=${(value) => select({ baseline: value === RUNNER_UP ? null : value })}
    />
  </div>`;
}

function Contributions({ rows }) {
  const values = rows.map((row) => row.logit),
    low = Math.min(0, ...values),
    high = Math.max(0, ...values);
  const columns = [
    { key: "name", label: "component", value: (row) => rows.indexOf(row), render: (r) => r.name },
    {
      key: "bar",
      label: "contribution to the logit",
      isSortable: false,
      render: (row) => html`<${SignedBar} value=${row.logit} low=${low} high=${high} />`,
    },
    {
      key: "logit",
      label: "logits",
      isNumber: true,
      value: (row) => Math.abs(row.logit),
      render: (row) => (row.logit > 0 ? "+" : "") + row.logit.toFixed(3).replace("-", "−"),
    },
  ];
  return html`<${DataTable}
    caption="Contribution of each component"
    isCaptionHidden
    class="lens-contributions picture"
    columns=${columns}
    rows=${rows}
    rowKey=${(row) => row.name}
    sortKey="logit"
  />`;
}

function toRows(data) {
  const labelName = data.target ? "target" : "prediction",
    attributionData = attribution.data.peek();
  const cells = data.layers.flatMap((layer, l) =>
    data.candidates[l].flatMap((candidates, t) =>
      candidates.map(([token, probability], rank) => ({
        layer,
        position: t + 1,
        decoder_input: data.decoder_input[t],
        rank: rank + 1,
        token,
        probability,
        [labelName]: data.labels[t],
        ["probability_of_" + labelName]: data.target_probability[l][t],
      })),
    ),
  );
  const contributions = (attributionData?.contributions ?? []).map(({ name, logit }) => ({
    position: attributionData.position + 1,
    component: name,
    token: attributionData.token,
    baseline_token: attributionData.baseline_token,
    logit,
  }));
  return [...cells, ...contributions];
}

export const logitLensSpec = {
  subView: "numbers",
  title: "Logit lens",
  explain:
    "Each decoder layer is decoded as if it were the last; early rows may misread it (Belrose et " +
    "al., 2023). Decoder input: the target. Stronger colors: higher probability; correct tokens " +
    "are framed. Select a cell to see the direct contribution of each component to the final " +
    "logit difference at its position.",
  Component: ({ data }) => html`<${Lens} data=${data} /><${Attribution} data=${data} />`,
  reset() {
    selection.value = NO_SELECTION;
    attribution.clear();
  },
  options: () => selection.value,
  restoreOptions({ cell, token, baseline }) {
    const isIndex = (i) => i === null || (Number.isInteger(i) && i >= 0);
    if (Array.isArray(cell) && cell.length === 2 && cell.every(isIndex) && cell[1] !== null)
      select({ cell });
    if (typeof token === "string") select({ token });
    if (typeof baseline === "string") select({ baseline });
  },
  exportData: (data) => ({ ...data, contributions: attribution.data.peek() }),
  rows: toRows,
};
