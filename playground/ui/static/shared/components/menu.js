import { html, useEffect, useRef } from "../../vendor/preact.js";

const MARGIN = 4;

/** Place the open panel below its button, or above it near the end of the window. */
function place(/** @type {HTMLElement} */ box) {
  const button = box.getBoundingClientRect(),
    panel = /** @type {HTMLElement} */ (box.lastElementChild),
    below = window.innerHeight - button.bottom - MARGIN;
  panel.style.right = Math.max(MARGIN, document.documentElement.clientWidth - button.right) + "px";
  const isBelow = panel.offsetHeight <= below || button.top < below;
  panel.style.top = isBelow ? button.bottom + MARGIN + "px" : "auto";
  panel.style.bottom = isBelow ? "auto" : window.innerHeight - button.top + MARGIN + "px";
}

/**
 * A button that opens a panel. Escape, a click elsewhere and scrolling close it, and so does a
 * button in the panel unless `isForm`.
 * @param {{ label: string, text?: string, isForm?: boolean, class?: string, children?: any }} props
 */
export function Menu({ label, text = "⋯", isForm, class: className = "", children }) {
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const close = () => {
    if (box.current) box.current.open = false;
  };
  useEffect(() => {
    const element = /** @type {HTMLDetailsElement} */ (box.current);
    let top = 0; // of the button when the panel opened
    const onClick = (/** @type {Event} */ event) => {
      if (!element.contains(/** @type {Node} */ (event.target))) close();
    };
    // The event of a scroll before the click may arrive after it.
    const onScroll = () => {
      if (element.getBoundingClientRect().top !== top) close();
    };
    const listen = (/** @type {"addEventListener" | "removeEventListener"} */ change) => {
      document[change]("click", onClick, true);
      document[change]("scroll", onScroll, true);
    };
    const onToggle = () => {
      top = element.getBoundingClientRect().top;
      if (element.open) place(element);
      listen(element.open ? "addEventListener" : "removeEventListener");
    };
    element.addEventListener("toggle", onToggle);
    return () => listen("removeEventListener");
  }, []);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !box.current?.open) return;
    close();
    box.current.querySelector("summary")?.focus();
  };
  return html`<details ref=${box} class=${`pg-menu ${className}`} onKeyDown=${onKeyDown}>
    <summary aria-label=${label}>${text}</summary>
    <div
      class="pg-menu-panel"
      onClick=${(/** @type {any} */ event) => !isForm && event.target.closest("button") && close()}
    >
      ${children}
    </div>
  </details>`;
}
