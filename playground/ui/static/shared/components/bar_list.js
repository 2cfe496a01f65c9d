import { html } from "../../vendor/preact.js";
import { formatPercent, formatToken } from "../format.js";

/**
 * Values from 0 to `max` as bars with their labels, for example the likeliest next tokens.
 * @param {{ label: string,
 *   items: { label: string, value: number, text?: string, isTarget?: boolean, title?: string }[],
 *   max?: number, format?: (value: number) => string, targetText?: string }} props `text` replaces
 *   the formatted value, `targetText` marks the item for screen readers
 */
export function BarList({ label, items, max = 1, format = formatPercent, targetText = "target" }) {
  return html`<ul class="pg-bars" aria-label=${label}>
    ${items.map(
      (item) =>
        html`<li key=${item.label} title=${item.title} class=${item.isTarget ? "target" : ""}>
          <span class="pg-bar-label">
            ${formatToken(item.label)}
            ${item.isTarget && html`<span class="pg-visually-hidden"> (${targetText})</span>`}
          </span>
          <span class="pg-bar" aria-hidden="true">
            <span
              style=${{ width: Math.max(0, Math.min(100, (100 * item.value) / max)) + "%" }}
            ></span>
          </span>
          <span class="pg-bar-value">${item.text ?? format(item.value)}</span>
        </li>`,
    )}
  </ul>`;
}
