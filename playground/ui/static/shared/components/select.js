import { html } from "../../vendor/preact.js";
/** @import { Option } from "../types.js" */

/**
 * The options of a select element; options with the same group are together. A style may
 * show examples where the browser draws options as elements (`appearance: base-select`).
 * @param {Option[]} options @param {string | null} value
 */
export function renderOptions(options, value) {
  const groups = [...new Set(options.map((option) => option.group ?? ""))];
  const render = (/** @type {Option} */ option) =>
    html`<option
      key=${option.value}
      value=${option.value}
      title=${option.title}
      data-example=${option.example}
      selected=${option.value === value}
    >
      ${option.label}
    </option>`;
  return groups.map((group) => {
    const members = options.filter((option) => (option.group ?? "") === group).map(render);
    return group ? html`<optgroup key=${group} label=${group}>${members}</optgroup>` : members;
  });
}

/**
 * A select element in a line of controls.
 * @param {{ label: string, options: Option[], value: string | null,
 *   onChange: (value: string) => void, class?: string }} props
 */
export const Select = ({ label, options, value, onChange, class: className }) =>
  html`<label>
    ${label}${" "}
    <select
      class=${className}
      onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}
    >
      ${renderOptions(options, value)}
    </select>
  </label>`;
