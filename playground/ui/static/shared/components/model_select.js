import { html } from "../../vendor/preact.js";
import { useUniqueId } from "./unique_id.js";

/** @import { Option } from "../types.js" */

/**
 * The options of a select element; options with the same group are together.
 * @param {Option[]} options
 * @param {string | null} value
 */
export function renderOptions(options, value) {
  const groups = [...new Set(options.map((option) => option.group ?? ""))];
  const render = (/** @type {Option} */ option) =>
    html`<option
      key=${option.value}
      value=${option.value}
      title=${option.title}
      disabled=${option.disabled}
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
 * A select element for a run or checkpoint. Without any, `emptyText` replaces it.
 * @param {{
 *   label: string,
 *   options: Option[],
 *   value: string | null,
 *   onChange: (value: string) => void,
 *   emptyText?: string,
 *   class?: string,
 * }} props
 */
export function ModelSelect({
  label,
  options,
  value,
  onChange,
  emptyText = "No models yet: train one in the Train tab.",
  class: className = "",
}) {
  const id = useUniqueId();
  if (!options.length) return html`<p class="pg-hint">${emptyText}</p>`;
  return html`<div class="pg-field">
    <label for=${id}>${label}</label>
    <select
      id=${id}
      class=${className}
      onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}
    >
      ${renderOptions(options, value)}
    </select>
  </div>`;
}
