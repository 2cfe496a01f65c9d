// The keyboard shortcuts, and the dialog with them and with what the page shows.
import { Table } from "../shared/components/data_table.js";
import { Dialog } from "../shared/components/dialog.js";
import { html, signal, useEffect } from "../vendor/preact.js";
import { sendCommand } from "./data/actions.js";
import { isTabOpen, state } from "./state.js";

const SHORTCUTS = [
  [["space"], "pause, resume"],
  [["→"], "one step, while paused"],
  [["←", "→"], "on a slider of steps: the stored step before or after"],
  [["←", "→", "↑", "↓"], "on a head of the diagram: select another head"],
  [["Enter"], "on the selected head: open it in Inspect"],
  [["←", "→", "↑", "↓"], "on a curve: read single values"],
  [["+", "−", "0"], "on a curve: zoom in, zoom out, show all steps"],
  [["?"], "this list"],
];
const TERMS = [
  ["SOS, EOS, PAD", "tokens for the start of a sequence, its end, and positions without a token"],
  ["training loss", "of one batch, with the weights in training"],
  [
    "held-out loss",
    "of sequences that are never trained on, with the weights that the model predicts with: " +
      "averaged ones in the preset Fast, whose loss is far lower",
  ],
  ["exact match", "fraction of held-out sequences whose output has no wrong token"],
  ["number of a block", "norm of the vectors that it adds, divided by that of their input"],
];
const OWN_KEYS = "input, textarea, select, summary, [contenteditable], dialog, [role=tab]";

const isHelpOpen = signal(false);
export const openHelp = () => {
  isHelpOpen.value = true;
};

export function HelpDialog() {
  useEffect(() => {
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  return html`<${Dialog}
    title="Help"
    class="keys"
    isOpen=${isHelpOpen.value}
    onClose=${() => (isHelpOpen.value = false)}
  >
    <${Table}
      rows=${SHORTCUTS.map(([keys, effect]) => [
        /** @type {string[]} */ (keys).map((key) => [html`<kbd>${key}</kbd>`, " "]),
        effect,
      ])}
    />
    <dl>
      ${TERMS.map(
        ([term, meaning]) =>
          html`<dt>${term}</dt>
            <dd>${meaning}</dd>`,
      )}
    </dl>
  <//>`;
}

/** @param {any} event */
function onKeyDown(event) {
  // Another tab handled the event, or the view is hidden.
  if (event.defaultPrevented || !isTabOpen.value) return;
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
