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
  { key: "year", label: "year" },
  { key: "name", label: "model" },
  {
    key: "from",
    label: "based on",
    isOptional: true,
    render: (row) => row.from.join(", ") || "recurrent models with attention",
  },
  { key: "architecture", label: "architecture" },
  { key: "idea", label: "contribution" },
  { key: "use", label: "use", isOptional: true },
  { key: "here", label: "in this playground", isOptional: true },
  { key: "source", label: "source", isOptional: true },
].map((column) => ({ isSortable: false, ...column }));

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

export function ArchitectureFacts() {
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
  return html`<div class="facts">
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
  </div>`;
}
