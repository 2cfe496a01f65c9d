import { Button } from "./buttons.js";
import { html, useEffect, useRef } from "../../vendor/preact.js";

/**
 * A modal dialog. Its Close button, Escape and a click beside it close it.
 * @param {{ title: string, isOpen: boolean, onClose: () => void, class?: string,
 *   children?: any }} props
 */
export function Dialog({ title, isOpen, onClose, class: className = "", children }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (isOpen && !box.current?.open) box.current?.showModal();
    if (!isOpen) box.current?.close();
  }, [isOpen]);
  return html`<dialog
    ref=${box}
    class=${className}
    aria-label=${title}
    onClose=${onClose}
    onClick=${(/** @type {any} */ event) => event.target === box.current && box.current?.close()}
  >
    <h3>${title}</h3>
    ${isOpen && children}
    <p><${Button} class="close" onClick=${() => box.current?.close()}>Close<//></p>
  </dialog>`;
}
