import { html, useRef } from "../../vendor/preact.js";

/**
 * A button that opens the file dialog of the browser.
 * @param {{
 *   label: string,
 *   accept: string,
 *   onFile: (file: File) => void,
 *   title?: string,
 *   class?: string,
 * }} props `accept` lists the accepted types, like the attribute of an input
 */
export function FileButton({ label, accept, onFile, title, class: className = "" }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const onChange = (/** @type {any} */ { currentTarget }) => {
    const [file] = currentTarget.files;
    // An empty field reports a second choice of the same file as a change.
    currentTarget.value = "";
    if (file) onFile(file);
  };
  return html`<button
      type="button"
      class=${`pg-button ${className}`}
      title=${title}
      onClick=${() => input.current?.click()}
    >
      ${label}</button
    ><input ref=${input} class="file" type="file" accept=${accept} hidden onChange=${onChange} />`;
}
