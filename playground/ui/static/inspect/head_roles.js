// The attention pattern of each head, measured on held-out sequences.
import { html } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage, formatNumber } from "../shared/format.js";
import { shade } from "./section_parts.js";
import { describeSample, findMeasurement, useMeasurement } from "./measurements.js";

export const PATTERNS = {
  diagonal: "position i attends to position i",
  "anti-diagonal": "position i attends to position i counted from the end",
  previous: "position i attends to i − 1",
  next: "position i attends to i + 1",
  first: "every position attends to the first",
  last: "every position attends to EOS, the end of the source",
  uniform: "every position attends equally to all positions (score: overlap with uniform weights)",
};
const PATTERN_NAMES = Object.keys(PATTERNS);
const KIND_ORDER = ["cross", "encoder", "decoder"];

/** Return a short name such as "cross 2.1". */
export const shortHeadName = (head) => `${head.kind} ${head.layer}.${head.head}`;

/** Return the place of a head in the order of kinds, layers and heads. */
export const headOrder = ({ kind, layer, head }) =>
  1e4 * KIND_ORDER.indexOf(kind) + 100 * layer + head;

function describeScore(head, name) {
  const score = formatNumber(head.patterns[name]),
    chance = head.chance[name];
  if (name === "uniform") return `${score} overlap with a uniform row`;
  const baseline = chance === null ? "" : `; uniform attention: ${formatNumber(chance)}`;
  return `${score} of its attention: ${PATTERNS[name]}${baseline}`;
}

/** @returns {import("../shared/types.js").Column} */
const patternColumn = (name) => ({
  key: name,
  label: name,
  help: "Fraction of the attention weights: " + PATTERNS[name],
  isNumber: true,
  value: (head) => head.patterns[name],
  style: (head) =>
    head.patterns[name] === null || name === "uniform" ? "" : shade(head.patterns[name]),
  render: (head) =>
    head.patterns[name] === null
      ? html`<span title="Not possible for this attention type">–</span>`
      : html`<span
          class=${name === head.best ? "heads-best" : ""}
          title=${describeScore(head, name)}
          >${head.patterns[name].toFixed(2)}</span
        >`,
});

const numberColumn = (key, label, help, read = (head) => head[key]) => ({
  key,
  label,
  help,
  isNumber: true,
  value: read,
  render: (head) => read(head)?.toFixed(2) ?? "",
});

const COLUMNS = [
  {
    key: "name",
    label: "head",
    value: headOrder,
    render: (head) => html`<span title=${head.name}>${shortHeadName(head)}</span>`,
  },
  { key: "description", label: "role" },
  numberColumn(
    "clarity",
    "clarity",
    "Score on its clearest pattern: 0 like uniform attention, 1 all weight on the pattern",
    (head) => (head.best === "uniform" ? null : head.clarity),
  ),
  ...PATTERN_NAMES.map(patternColumn),
  numberColumn(
    "entropy",
    "entropy (bits)",
    "How evenly a query spreads its weights, on average; 0: all weight on one token",
    (head) => head.entropy / Math.LN2,
  ),
  numberColumn("aligned", "aligned", "Fraction on the source token that determines the target"),
  numberColumn("distance", "distance", "Mean distance from that token, in positions"),
];

function HeadRoles({ data: response }) {
  const { data, error, isStale } = useMeasurement("heads", {}, response),
    sample = data && formatMessage(describeSample(data) + ", teacher-forced"),
    text = error ? formatMessage(error) : isStale ? "Measuring" : sample;
  return html`<${StatusMessage} kind=${error ? "error" : "info"} text=${text} /> ${
      data &&
      html`<div class=${isStale ? "stale" : ""}>
        <${DataTable}
          caption="Heads"
          class="heads-table picture"
          columns=${COLUMNS}
          rows=${[...data.heads].sort((a, b) => headOrder(a) - headOrder(b))}
          sortKey="clarity"
        />
      </div>`
    }`;
}

export const headRolesSpec = {
  subView: "attention",
  title: "Roles",
  explain:
    "How much of each head's attention follows a pattern, clearest first, as a fraction over " +
    "held-out sequences. Stronger colors: larger fraction.",
  request: "output",
  Component: HeadRoles,
  exportData: () => findMeasurement("heads")?.data ?? {},
};
