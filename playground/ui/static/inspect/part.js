// The parts of a section.
import { html } from "../vendor/preact.js";

/**
 * A part of a section with a heading and an explanation.
 * @param {{ title: string, hint?: string, isWide?: boolean, children?: any }} props
 */
export const Part = ({ title, hint, isWide = false, children }) =>
  html`<section class=${"part" + (isWide ? " wide" : "")}>
    <h4>${title}</h4>
    ${hint && html`<p class="pg-quiet">${hint}</p>`}${children}
  </section>`;
