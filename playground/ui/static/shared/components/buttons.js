import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { useUniqueId } from "./hooks.js";
/** @import { ComponentChildren } from "../../vendor/preact.js" */

/**
 * A button. Other properties than its class are attributes of the element.
 * @param {{ class?: string, children?: ComponentChildren, [attribute: string]: any }} props
 */
export const Button = ({ class: className = "", children, ...attributes }) =>
  html`<button type="button" class=${`pg-button ${className}`} ...${attributes}>
    ${children}
  </button>`;

/**
 * A button that needs a confirmation. Escape and a click elsewhere cancel.
 * @param {{ label: string, question: string, confirmLabel?: string, onConfirm: () => void }} props
 */
export function ConfirmButton({ label, question, confirmLabel = label, onConfirm }) {
  const [isOpen, setOpen] = useState(false),
    cancelButton = useRef(/** @type {HTMLButtonElement | null} */ (null)),
    opener = useRef(/** @type {HTMLButtonElement | null} */ (null)),
    wasOpen = useRef(false);
  useEffect(() => {
    if (isOpen) cancelButton.current?.focus();
    else if (wasOpen.current) opener.current?.focus();
    wasOpen.current = isOpen;
  }, [isOpen]);
  if (!isOpen)
    return html`<button
      ref=${opener}
      type="button"
      class="pg-button"
      onClick=${() => setOpen(true)}
    >
      ${label}
    </button>`;
  const confirm = () => {
    setOpen(false);
    onConfirm();
  };
  /** @param {any} event */
  const onFocusOut = (event) => {
    if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) setOpen(false);
  };
  return html`<span
    class="pg-confirm"
    role="group"
    aria-label=${question}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && setOpen(false)}
    onFocusOut=${onFocusOut}
  >
    <span>${question}</span>
    <button type="button" class="pg-button" onClick=${() => setOpen(false)} ref=${cancelButton}>
      Cancel
    </button>
    <${Button} class="danger" onClick=${confirm}>${confirmLabel}<//>
  </span>`;
}

const CONFIRMATION_MS = 1500;

/**
 * A button that copies a text and confirms it. If the browser denies access to the clipboard,
 * a prompt shows the text.
 * @param {{ text: string | (() => string | Promise<string>), label?: string, title?: string,
 *   class?: string }} props
 */
export function CopyButton({ text, label = "Copy", title, class: className = "" }) {
  const [isCopied, setCopied] = useState(false),
    timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    const content = typeof text === "string" ? text : await text();
    try {
      await navigator.clipboard.writeText(content);
      setCopied(true);
    } catch {
      window.prompt(title ?? label, content);
    }
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setCopied(false), CONFIRMATION_MS);
  };
  return html`<${Button} class=${className} title=${title} onClick=${copy}>
    <span aria-live="polite">${isCopied ? "Copied" : label}</span>
  <//>`;
}

/**
 * A text that can be copied but not edited; with `rows`, in several lines.
 * @param {{ label: string, value: string, rows?: number, class?: string }} props
 */
export function CopyField({ label, value, rows, class: className = "" }) {
  const id = useUniqueId();
  return html`<div class="pg-field">
    <label for=${id}>${label}</label>
    <span class="pg-copy">
      <${rows ? "textarea" : "input"}
        id=${id}
        class=${className}
        type=${rows ? undefined : "text"}
        rows=${rows}
        spellcheck=${false}
        readonly
        value=${value}
        onFocus=${(/** @type {any} */ event) => event.currentTarget.select()}
      />
      <${CopyButton} text=${value} title=${"Copy: " + label} />
    </span>
  </div>`;
}

/**
 * A button that opens the file dialog of the browser.
 * @param {{ label: string, accept: string, onFile: (file: File) => void, title?: string,
 *   class?: string }} props `accept` lists the accepted types, like the attribute of an input
 */
export function FileButton({ label, accept, onFile, title, class: className = "" }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const onChange = (/** @type {any} */ { currentTarget }) => {
    const [file] = currentTarget.files;
    // An empty field reports a second choice of the same file as a change.
    currentTarget.value = "";
    if (file) onFile(file);
  };
  return html`<${Button} class=${className} title=${title} onClick=${() => input.current?.click()}>
      ${label}<//
    ><input ref=${input} class="file" type="file" accept=${accept} hidden onChange=${onChange} />`;
}
