// The keyboard shortcuts, and the dialog that lists them.
import { Dialog } from "../shared/components/dialog.js";
import { html, signal } from "../vendor/preact.js";
import { state } from "./state.js";
import { sendCommand } from "./top_bar.js";
import { addViewListener, root } from "./view.js";

const SHORTCUTS = [
  [["space"], "pause, resume"],
  [["→"], "one step, while paused"],
  [["←", "→"], "on a slider of steps: the stored step before or after"],
  [["←", "→", "↑", "↓"], "on a head of the diagram: select another head"],
  [["Enter"], "on the selected head: open it in Inspect"],
  [["←", "→", "↑", "↓"], "on a curve or an attention map: read single values"],
  [["+", "−", "0"], "on a curve: zoom in, zoom out, show all steps"],
  [["?"], "this list"],
];
const OWN_KEYS = "input, textarea, select, summary, [contenteditable], dialog, [role=tab]";

const isHelpOpen = signal(false);
export const openHelp = () => {
  isHelpOpen.value = true;
};

export function HelpDialog() {
  return html`<${Dialog}
    title="Keyboard"
    class="keys"
    isOpen=${isHelpOpen.value}
    onClose=${() => (isHelpOpen.value = false)}
  >
    <table>
      <tbody>
        ${SHORTCUTS.map(
          ([keys, effect]) =>
            html`<tr>
              <td>
                ${/** @type {string[]} */ (keys).map((key) => [html`<kbd>${key}</kbd>`, " "])}
              </td>
              <td>${effect}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  <//>`;
}

/** @param {any} event */
function onKeyDown(event) {
  // Another tab handled the event, or the view is hidden.
  if (event.defaultPrevented || !root.offsetParent) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(OWN_KEYS)) return;
  const isOnButton = event.target.closest("button, canvas, a"),
    { status } = state;
  if (event.key === " " && !isOnButton && ["training", "paused"].includes(status)) {
    event.preventDefault();
    sendCommand(status === "paused" ? "resume" : "pause");
  } else if (
    event.key === "ArrowRight" &&
    event.target.tagName !== "CANVAS" &&
    status === "paused"
  ) {
    event.preventDefault();
    sendCommand("step");
  } else if (event.key === "?") openHelp();
}

export const initShortcuts = () => addViewListener(document, "keydown", onKeyDown);
