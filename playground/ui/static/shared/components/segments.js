import { html } from "../../vendor/preact.js";

/** @import { Option } from "../types.js" */

const MAX_JOINED = 7; // more buttons may need two lines, so they are not joined

/**
 * A group of buttons, one of which is pressed. The arrow keys move between them.
 * @param {{
 *   label: string,
 *   options: Option[],
 *   value: string,
 *   onChange: (value: string) => void,
 * }} props
 */
export function SegmentedControl({ label, options, value, onChange }) {
  const enabled = options.filter((option) => !option.disabled);
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const index = enabled.findIndex((option) => option.value === value),
      next = enabled[(index + step + enabled.length) % enabled.length],
      group = /** @type {HTMLElement} */ (event.currentTarget);
    onChange(next.value);
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (group.querySelectorAll("button"));
    buttons[options.indexOf(next)].focus();
  };
  return html`<span
    class=${options.length > MAX_JOINED ? "pg-segments separate" : "pg-segments"}
    role="group"
    aria-label=${label}
    onKeyDown=${onKeyDown}
  >
    ${options.map(
      (option) =>
        html`<button
          key=${option.value}
          type="button"
          title=${option.title}
          disabled=${option.disabled}
          data-value=${option.value}
          aria-pressed=${String(option.value === value)}
          tabindex=${option.value === value ? 0 : -1}
          onClick=${() => onChange(option.value)}
        >
          <span data-text=${option.label}>${option.label}</span>
        </button>`,
    )}
  </span>`;
}
