import { html, useRef, useState } from "../../vendor/preact.js";
import { formatNumber } from "../format.js";
import { renderOptions } from "./select.js";
import { useUniqueId } from "./hooks.js";
/** @import { ComponentChildren } from "../../vendor/preact.js" */
/** @import { FieldSpec } from "../types.js" */

/** @param {number} bound */
const formatBound = (bound) =>
  Number.isInteger(bound) ? bound.toLocaleString("en") : formatNumber(bound);

/** @param {FieldSpec} field */
function acceptedRange({ min, max, isInteger }) {
  const kind = isInteger ? "a whole number" : "a number";
  if (min !== undefined && max !== undefined)
    return `${kind} from ${formatBound(min)} to ${formatBound(max)}`;
  if (min !== undefined) return `${kind} of at least ${formatBound(min)}`;
  return max === undefined ? kind : `${kind} of at most ${formatBound(max)}`;
}

/** Return the error, or an empty text. @param {FieldSpec} field @param {any} value */
export function validateField(field, value) {
  const isEmpty = value === "" || value === null || value === undefined;
  if (isEmpty) return field.isRequired ? `${field.label} is empty; enter a value.` : "";
  if (field.type === "number") {
    const number = Number(value),
      isOutside =
        !Number.isFinite(number) ||
        number < (field.min ?? -Infinity) ||
        number > (field.max ?? Infinity);
    if (isOutside || (field.isInteger && !Number.isInteger(number)))
      return `${field.label} is ${value}; enter ${acceptedRange(field)}.`;
  }
  return field.validate?.(value) ?? "";
}

/** @param {FieldSpec[]} fields @param {Record<string, any>} values */
function validateForm(fields, values) {
  const errors = fields.map((field) => [field.name, validateField(field, values[field.name])]);
  return Object.fromEntries(errors.filter(([, error]) => error));
}

/**
 * A labeled control with its hint and its error.
 * @param {{ field: FieldSpec, value: any, error?: string, onInput: (value: any) => void,
 *   onBlur?: () => void, class?: string }} props
 */
export function Field({ field, value, error = "", onInput, onBlur, class: className = "" }) {
  const id = useUniqueId(),
    noteId = id + "-note",
    isCheckbox = field.type === "checkbox",
    note = error || field.hint || "";
  const common = {
    id,
    name: field.name,
    class: className,
    "aria-invalid": error ? "true" : undefined,
    "aria-describedby": note ? noteId : undefined,
    required: field.isRequired,
    autocomplete: "off",
    spellcheck: false,
    onBlur,
  };
  const noteText =
    note && html`<p id=${noteId} class=${error ? "pg-error" : "pg-hint"}>${note}</p>`;
  if (field.type === "radio")
    return html`<fieldset class="pg-field" aria-describedby=${note ? noteId : undefined}>
      <legend>${field.label}</legend>
      ${renderRadioButtons(field, value, onInput, id)} ${noteText}
    </fieldset>`;
  return html`<div class=${"pg-field" + (isCheckbox ? " checkbox" : "")}>
    <label for=${id}>${field.label}</label>
    ${renderControl(field, value, onInput, common)} ${noteText}
  </div>`;
}

/**
 * @param {FieldSpec} field @param {any} value @param {(value: any) => void} onInput
 * @param {string} group the name that the buttons share
 */
const renderRadioButtons = ({ options = [] }, value, onInput, group) =>
  html`<div class="pg-radios">
    ${options.map(
      (option) =>
        html`<label key=${option.value}>
          <input
            type="radio"
            name=${group}
            value=${option.value}
            checked=${option.value === value}
            onChange=${() => onInput(option.value)}
          />
          ${option.label}
        </label>`,
    )}
  </div>`;

/**
 * @param {FieldSpec} field @param {any} value @param {(value: any) => void} onInput
 * @param {{ id: string }} common the properties of every control
 */
function renderControl(field, value, onInput, common) {
  const { type = "text", placeholder, maxLength, min, max, step, isInteger } = field,
    read = (/** @type {any} */ event) => onInput(event.currentTarget.value);
  if (type === "select")
    return html`<select ...${common} onChange=${read}>
      ${renderOptions(field.options ?? [], value)}
    </select>`;
  if (type === "textarea")
    return html`<textarea
      ...${common}
      value=${value}
      placeholder=${placeholder}
      maxlength=${maxLength}
      onInput=${read}
    ></textarea>`;
  if (type === "checkbox")
    return html`<input
      ...${common}
      type="checkbox"
      checked=${Boolean(value)}
      onChange=${(/** @type {any} */ event) => onInput(event.currentTarget.checked)}
    />`;
  const limits = type === "number" ? { min, max, step: step ?? (isInteger ? 1 : "any") } : {},
    listId = field.suggestions && common.id + "-list";
  return html`<input
      ...${common}
      ...${limits}
      type=${type}
      value=${value}
      placeholder=${placeholder}
      maxlength=${maxLength}
      list=${listId}
      onInput=${read}
    />
    ${
      field.suggestions &&
      html`<datalist id=${listId}>
        ${field.suggestions.map((each) => html`<option key=${each} value=${each}></option>`)}
      </datalist>`
    }`;
}

/**
 * A number with its accepted range.
 * @param {{ label: string, value: number | string, onChange: (value: number) => void, min?: number,
 *   max?: number, step?: number, isInteger?: boolean, hint?: string, class?: string }} props
 *   `onChange` receives valid numbers only
 */
export function NumberField({ value, onChange, class: className = "", ...rest }) {
  const field = /** @type {FieldSpec} */ ({ name: "", type: "number", isRequired: true, ...rest }),
    [draft, setDraft] = useState(/** @type {string | null} */ (null)),
    displayed = draft ?? value;
  /** @param {string} text */
  const onInput = (text) => {
    setDraft(text);
    if (!validateField(field, text)) onChange(Number(text));
  };
  const error = validateField(field, displayed);
  return html`<${Field}
    field=${field}
    class=${className}
    value=${displayed}
    error=${error}
    onInput=${onInput}
    onBlur=${() => !error && setDraft(null)}
  />`;
}

/**
 * A form from the description of its fields. Errors of `validate`, and those that the server
 * returns as `errors`, stand beside their field.
 * @param {{ fields: FieldSpec[], values: Record<string, any>,
 *   onInput: (name: string, value: any) => void, onSubmit: (values: Record<string, any>) => void,
 *   submitLabel: string, submitClass?: string, errors?: Record<string, string>, isBusy?: boolean,
 *   disabledReason?: string, class?: string, children?: ComponentChildren }} props
 */
export function Form({
  fields,
  values,
  onInput,
  onSubmit,
  submitLabel,
  submitClass = "",
  errors = {},
  isBusy = false,
  disabledReason = "",
  class: className = "",
  children,
}) {
  const form = useRef(/** @type {HTMLFormElement | null} */ (null)),
    [touched, setTouched] = useState(/** @type {Set<string>} */ (new Set())),
    touch = (/** @type {string[]} */ names) => setTouched(new Set([...touched, ...names])),
    messages = validateForm(fields, values);
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    touch(fields.map((field) => field.name));
    const first = fields.find((field) => messages[field.name]);
    if (!first) return onSubmit(values);
    const control = form.current?.elements.namedItem(first.name);
    if (control instanceof HTMLElement) control.focus();
  };
  return html`<form ref=${form} class=${`pg-form ${className}`} novalidate onSubmit=${submit}>
    ${fields.map(
      (field) =>
        html`<${Field}
          key=${field.name}
          field=${field}
          class=${field.name}
          value=${values[field.name]}
          error=${(touched.has(field.name) && messages[field.name]) || errors[field.name]}
          onInput=${(/** @type {any} */ value) => onInput(field.name, value)}
          onBlur=${() => touch([field.name])}
        />`,
    )}
    ${children}
    <p class="pg-buttons">
      <button
        type="submit"
        class=${`pg-button primary ${submitClass}`}
        disabled=${isBusy || Boolean(disabledReason)}
        title=${disabledReason}
      >
        ${submitLabel}
      </button>
      ${disabledReason && html`<span class="pg-hint">${disabledReason}</span>`}
    </p>
  </form>`;
}
