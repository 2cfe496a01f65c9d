// The weights of each component of the model.
import { html } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { formatInteger } from "../shared/format.js";

const COLUMNS = [
  { key: "component", label: "component", isSortable: false },
  {
    key: "shapes",
    label: "number × shape",
    isSortable: false,
    // A line may break beside a plus only.
    render: (row) => row.shapes.replaceAll(/(?<!\+) (?!\+)/g, "\u00a0"),
  },
  {
    key: "parameters",
    label: "parameters",
    isSortable: false,
    isNumber: true,
    render: (row) => formatInteger(row.parameters),
  },
];

const Parameters = ({ data: { components, total } }) =>
  html`<${DataTable}
    caption="Parameters of each component"
    class="parameters-table"
    columns=${COLUMNS}
    rows=${[...components, { component: "sum", shapes: "", parameters: total }]}
    rowKey=${(row) => row.component}
  />`;

export const parametersSpec = {
  subView: "numbers",
  title: "Parameters",
  explain:
    "The weights of each component, all layers together: how many, of which shape. A weight that " +
    "two components share counts once, for the first of them.",
  Component: Parameters,
};
