import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { useUniqueId } from "./unique_id.js";

const CONFIRMATION_MS = 1500;

/**
 * A button that copies a text and confirms it. If the browser denies access to the clipboard,
 * a prompt shows the text.
 * @param {{
 *   text: string | (() => string | Promise<string>),
 *   label?: string,
 *   title?: string,
 *   class?: string,
 * }} props
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
  return html`<button
    type="button"
    class=${`pg-button ${className}`}
    title=${title}
    onClick=${copy}
  >
    <span aria-live="polite">${isCopied ? "Copied" : label}</span>
  </button>`;
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
