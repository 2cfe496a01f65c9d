import { html, useEffect, useRef, useState } from "../../vendor/preact.js";

/**
 * A button that needs a confirmation. Escape and a click elsewhere cancel.
 * @param {{
 *   label: string,
 *   question: string,
 *   confirmLabel?: string,
 *   onConfirm: () => void,
 * }} props
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
    <button type="button" class="pg-button danger" onClick=${confirm}>${confirmLabel}</button>
  </span>`;
}
