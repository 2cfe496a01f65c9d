import { html } from "../../vendor/preact.js";

/** @import { Option } from "../types.js" */

/**
 * The tabs of the views inside a tab of the page. The arrow keys move between them. The selected
 * panel has `role="tabpanel"` and `aria-labelledby="PREFIX-VALUE"`.
 * @param {{
 *   label: string,
 *   prefix: string,
 *   options: Option[],
 *   value: string,
 *   onChange: (value: string) => void,
 * }} props
 */
export function Tabs({ label, prefix, options, value, onChange }) {
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
      list = /** @type {HTMLElement} */ (event.currentTarget);
    if (!step) return;
    event.preventDefault();
    const index = options.findIndex((option) => option.value === value),
      next = (index + step + options.length) % options.length;
    onChange(options[next].value);
    list.querySelectorAll("button")[next].focus();
  };
  return html`<div class="views pg-tabs" role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
    ${options.map(
      (option) =>
        html`<button
          key=${option.value}
          id=${`${prefix}-${option.value}`}
          type="button"
          role="tab"
          title=${option.title}
          aria-selected=${String(option.value === value)}
          tabindex=${option.value === value ? 0 : -1}
          onClick=${() => onChange(option.value)}
        >
          <span data-text=${option.label}>${option.label}</span>
        </button>`,
    )}
  </div>`;
}
