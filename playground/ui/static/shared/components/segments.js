import { html } from "../../vendor/preact.js";
/** @import { Option } from "../types.js" */

const STEPS = /** @type {Record<string, number>} */ ({
  ArrowLeft: -1,
  ArrowUp: -1,
  ArrowRight: 1,
  ArrowDown: 1,
});

/**
 * A group of buttons, one of which is selected. The arrow keys move between them.
 * @typedef {{ label: string, options: Option[], value: string, onChange: (value: string) => void }}
 *   Props
 * @param {Props & { role: string, class: string,
 *   describe: (option: Option, isSelected: string) => object }} props `describe` returns more
 *   attributes of a button
 */
function ButtonGroup({ label, options, value, onChange, describe, ...rest }) {
  const enabled = options.filter((option) => !option.disabled);
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const index = enabled.findIndex((option) => option.value === value),
      next = enabled[(index + step + enabled.length) % enabled.length],
      group = /** @type {HTMLElement} */ (event.currentTarget);
    onChange(next.value);
    group.querySelectorAll("button")[options.indexOf(next)].focus();
  };
  return html`<span ...${rest} aria-label=${label} onKeyDown=${onKeyDown}>
    ${options.map(
      (option) =>
        html`<button
          key=${option.value}
          type="button"
          title=${option.title}
          disabled=${option.disabled}
          tabindex=${option.value === value ? 0 : -1}
          onClick=${() => onChange(option.value)}
          ...${describe(option, String(option.value === value))}
        >
          <span data-text=${option.label}>${option.label}</span>
        </button>`,
    )}
  </span>`;
}

/** A setting with few values. @param {Props} props */
export const SegmentedControl = (props) =>
  html`<${ButtonGroup}
    ...${props}
    role="group"
    class="pg-segments"
    describe=${(/** @type {Option} */ { value }, /** @type {string} */ isSelected) => ({
      "data-value": value,
      "aria-pressed": isSelected,
    })}
  />`;

/**
 * The tabs of the views inside a tab of the page. The selected panel has `role="tabpanel"` and
 * `aria-labelledby="PREFIX-VALUE"`.
 * @param {Props & { prefix: string }} props
 */
export const Tabs = ({ prefix, ...props }) =>
  html`<${ButtonGroup}
    ...${props}
    role="tablist"
    class="views pg-tabs"
    describe=${(/** @type {Option} */ { value }, /** @type {string} */ isSelected) => ({
      id: `${prefix}-${value}`,
      role: "tab",
      "aria-selected": isSelected,
    })}
  />`;
