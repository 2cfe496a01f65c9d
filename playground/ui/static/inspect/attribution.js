// Direct logit attribution: what each component adds to the logit of a token.
import { html } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { Select } from "../shared/components/select.js";
import { formatToken } from "../shared/format.js";
import { createOptions, formatSigned, barColumn } from "./section_parts.js";

const RUNNER_UP = "runner up"; // no token has a space
const OF_TARGET = { token: "", baseline: RUNNER_UP };
const { options, set, update, restore } = createOptions({ position: 0, ...OF_TARGET });

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

function Choices({ data: { labels, position, vocabulary, token, target, runner_up: runnerUp } }) {
  const { baseline } = options.value,
    isTarget = (name) => target && name === labels[position],
    tokens = vocabulary.map((name) => ({ value: name, label: formatToken(name) }));
  return html`<div class="pg-row row">
    <${Select}
      label="position"
      class="attribution-position"
      options=${labels.map((name, i) => ({
        value: String(i),
        label: `${i + 1}: ${formatToken(name)}`,
      }))}
      value=${String(position)}
      onChange=${(next) => update({ position: Number(next), ...OF_TARGET })}
    />
    <${Select}
      label="token"
      class="attribution-token"
      options=${tokens.map(({ value, label }) => ({
        value,
        label: label + (isTarget(value) ? " (target)" : ""),
      }))}
      value=${token}
      onChange=${(next) =>
        update({ token: next, baseline: baseline === next ? RUNNER_UP : baseline })}
    />
    <${Select}
      label="minus"
      class="attribution-baseline"
      options=${[
        { value: RUNNER_UP, label: runnerUp + " (runner-up)" },
        { value: "", label: "none" },
        ...tokens.filter(({ value }) => value !== token),
      ]}
      value=${baseline}
      onChange=${(value) => update({ baseline: value })}
    />
  </div>`;
}

function Contributions({ rows }) {
  const columns = [
    { key: "name", label: "component", value: (row) => rows.indexOf(row), render: (r) => r.name },
    barColumn("contribution to the logit", rows, (row) => row.logit),
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
    class="attribution-table picture"
    columns=${columns}
    rows=${rows}
    sortKey="logit"
  />`;
}

const Attribution = ({ data }) =>
  html`<${Choices} data=${data} />
    <p class="attribution-message pg-quiet">${describeAttribution(data)}</p>
    <${Contributions} rows=${data.contributions} />`;

export const attributionSpec = {
  subView: "matters",
  title: "Attribution",
  explain:
    "Direct logit attribution: the contribution of each component to the final logit difference " +
    "at one output position. Decoder input: the target.",
  Component: Attribution,
  reset: () => set({ position: 0, ...OF_TARGET }),
  options() {
    const { position, token, baseline } = options.value;
    return {
      position,
      ...(token && { token }),
      ...(baseline !== RUNNER_UP && { baseline_token: baseline }),
    };
  },
  viewOptions: () => options.value,
  restoreOptions: restore,
};
