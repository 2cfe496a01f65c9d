// Logit lens: the most probable token after each layer.
import { html, signal, useState } from "../vendor/preact.js";
import { ARROWS } from "../shared/components/heat_map_view.js";
import { formatPercent, formatToken } from "../shared/format.js";
import { shade } from "./section_parts.js";

/** The selected layer and position; null is the last layer. */
const cell = signal(/** @type {[number | null, number]} */ ([null, 0]));

/** Return the selected layer and position, within the bounds of a result. @param {any} data */
function selectedCell(data) {
  const [layer, position] = cell.value,
    last = data.layers.length - 1;
  return [Math.min(layer ?? last, last), Math.min(position, data.labels.length - 1)];
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
      onFocusIn=${() => (cell.value = [l, t])}
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

export const logitLensSpec = {
  subView: "numbers",
  title: "Logit lens",
  explain:
    "Each decoder layer is decoded as if it were the last; early rows may misread it (Belrose et " +
    "al., 2023). Decoder input: the target. Stronger colors: higher probability; correct tokens " +
    "are framed.",
  Component: Lens,
  reset() {
    cell.value = [null, 0];
  },
  options: () => ({ cell: cell.value }),
  restoreOptions({ cell: link }) {
    const isIndex = (i) => Number.isInteger(i) && i >= 0;
    if (!Array.isArray(link) || link.length !== 2) return;
    const [layer, position] = link;
    if ((layer === null || isIndex(layer)) && isIndex(position)) cell.value = [layer, position];
  },
};
