// The parts of a section, and tables whose rows have a heading.
import { html } from "../vendor/preact.js";

/**
 * A part of a section with a heading and an explanation.
 * @param {{ title: string, hint?: string, size?: "" | "wide" | "tall", children?: any }} props
 */
export const Part = ({ title, hint, size = "", children }) =>
  html`<section class=${"part " + size}>
    <h4>${title}</h4>
    ${hint && html`<p class="hint">${hint}</p>`}${children}
  </section>`;

/**
 * A table of rows, each with a heading and values. Values in `isOff` are gray.
 * @param {{
 *   label: string,
 *   rows: { name: string, values: any[], isOff?: boolean[], title?: string }[],
 *   class?: string,
 * }} props
 */
export const RowTable = ({ label, rows, class: className = "" }) =>
  html`<div class="pg-table-box" tabindex="0" role="region" aria-label=${label}>
    <table class=${"row-table " + className}>
      <tbody>
        ${rows.map(
          ({ name, values, isOff, title }, r) =>
            html`<tr key=${r} title=${title}>
              <th scope="row">${name}</th>
              ${values.map(
                (value, i) => html`<td key=${i} class=${isOff?.[i] ? "off" : ""}>${value}</td>`,
              )}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
