import { html } from "../../vendor/preact.js";
/** @import { Option } from "../types.js" */

/** @type {Record<string, number>} */
const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

/**
 * A group of buttons, one of which is selected. The arrow keys move between them. With `prefix`,
 * they are the tabs of views, whose panel has `role="tabpanel"` and
 * `aria-labelledby="PREFIX-VALUE"`.
 * @param {{ label: string, options: Option[], of?: { value: string }, value?: string,
 *   onChange?: (value: string) => void, prefix?: string }} props `of` is a signal of the value
 */
export function SegmentedControl({ label, options, of, prefix = "", ...props }) {
  const { value = of?.value, onChange } = props,
    select = (/** @type {string} */ next) => (of ? (of.value = next) : onChange?.(next));
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const { length } = options,
      next = (options.findIndex((option) => option.value === value) + step + length) % length,
      group = /** @type {HTMLElement} */ (event.currentTarget);
    select(options[next].value);
    group.querySelectorAll("button")[next].focus();
  };
  return html`<span
    role=${prefix ? "tablist" : "group"}
    class=${prefix ? "views pg-tabs" : "pg-segments"}
    aria-label=${label}
    onKeyDown=${onKeyDown}
  >
    ${options.map((option) => {
      const isSelected = option.value === value,
        tab = { id: `${prefix}-${option.value}`, role: "tab", "aria-selected": String(isSelected) };
      return html`<button
        key=${option.value}
        type="button"
        title=${option.title}
        tabindex=${isSelected ? 0 : -1}
        onClick=${() => select(option.value)}
        ...${prefix ? tab : { "data-value": option.value, "aria-pressed": String(isSelected) }}
      >
        <span data-text=${option.label}>${option.label}</span>
      </button>`;
    })}
  </span>`;
}
