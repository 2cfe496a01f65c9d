import { html } from "../../vendor/preact.js";
import { useUniqueId } from "./unique_id.js";

/** @import { ComponentChildren } from "../../vendor/preact.js" */

/**
 * A part of a tab with a heading. `help` is hidden until the user opens it.
 * @param {{
 *   title: string,
 *   hint?: string,
 *   help?: ComponentChildren,
 *   actions?: ComponentChildren,
 *   class?: string,
 *   children?: ComponentChildren,
 * }} props
 */
export function Section({ title, hint, help, actions, class: className = "", children }) {
  const id = useUniqueId();
  return html`<section class=${`pg-section ${className}`} aria-labelledby=${id}>
    <header class="pg-section-header">
      <h3 id=${id}>${title}</h3>
      ${actions}
    </header>
    ${hint && html`<p class="pg-hint">${hint}</p>`}
    ${
      help &&
      html`<details class="pg-help">
        <summary>What is this?</summary>
        ${help}
      </details>`
    }
    ${children}
  </section>`;
}
