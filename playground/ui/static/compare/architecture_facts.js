// Facts on the three architectures, and their history.
import { html, signal, useEffect } from "../vendor/preact.js";
import { request } from "../shared/api.js";
import { DataTable } from "../shared/components/data_table.js";

const PROPERTIES = [
  ["examples", "examples"],
  ["direction", "attention"],
  ["generates", "generation"],
  ["objective", "objective"],
  ["cross_attention", "cross-attention"],
  ["best_for", "best for"],
];
const HISTORY_COLUMNS = [
  { key: "name", label: "model", render: (row) => html`<${Origin} row=${row} />` },
  {
    key: "idea",
    label: "contribution",
    render: (row) => html`${row.idea}<span class="what">Use: ${row.use}</span>`,
  },
  { key: "here", label: "in this playground", isOptional: true },
  { key: "source", label: "source", isOptional: true, render: (row) => linkPapers(row) },
].map((column) => ({ isSortable: false, ...column }));

const Origin = ({ row: { name, year, architecture, from } }) =>
  html`${name}
    <span class="what">
      ${`${year}, ${architecture}, from ${from.join(", ") || "recurrent models with attention"}`}
    </span>`;

/** Return the citations of a model, with links to the papers that are on arXiv. */
export const linkPapers = ({ source, arxiv }) =>
  source.split("; ").map((citation, i) => {
    const text = arxiv[i]
      ? html`<a href=${"https://arxiv.org/abs/" + arxiv[i]} target="_blank" rel="noopener"
          >${citation}</a
        >`
      : citation;
    return html`<span key=${citation} class="paper">${text}</span>`;
  });

const facts = signal(/** @type {any} */ (null));

async function loadFacts() {
  try {
    facts.value ??= await request("models/facts", {});
  } catch {
    // The page shows no facts; the next visit of the view loads them.
  }
}

/** Return the facts as a table: a row for each property, a column for each architecture. */
export const transposeFacts = (architectures) =>
  PROPERTIES.map(([key, property]) => ({
    property,
    ...Object.fromEntries(
      architectures.map((architecture, i) => ["architecture" + i, architecture[key]]),
    ),
  }));

/** @param {{ isOpen: boolean }} props */
export function ArchitectureFacts({ isOpen }) {
  useEffect(() => {
    loadFacts();
  }, []);
  if (!facts.value) return null;
  const { architectures, tree } = facts.value;
  const columns = [
    { key: "property", label: "property", isSortable: false },
    ...architectures.map((architecture, i) => ({
      key: "architecture" + i,
      label: architecture.architecture,
      isSortable: false,
    })),
  ];
  return html`<details class="facts" open=${isOpen}>
    <summary>About these architectures</summary>
    <h3>Three architectures</h3>
    <${DataTable}
      class="reading properties"
      caption="Three architectures"
      isCaptionHidden
      columns=${columns}
      rows=${transposeFacts(architectures)}
      rowKey=${(row) => row.property}
    />
    <h3>History</h3>
    <p class="pg-hint">The year is that of the first version of the paper.</p>
    <${DataTable}
      class="reading"
      caption="History"
      isCaptionHidden
      columns=${HISTORY_COLUMNS}
      rows=${tree}
      rowKey=${(row) => row.name}
    />
  </details>`;
}
