// The keyboard shortcuts. The document lists them in its dialog Help.
import { sendCommand } from "./data/actions.js";
import { isTabOpen, state } from "./state.js";

const OWN_KEYS = "input, textarea, select, summary, [contenteditable], dialog, [role=tab]";

function onKeyDown(event) {
  if (event.defaultPrevented) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(OWN_KEYS)) return;
  if (event.key === "?")
    /** @type {HTMLElement} */ (document.querySelector("#help")).togglePopover();
  // Another tab handled the event, or the view is hidden.
  if (!isTabOpen.value) return;
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
  }
}

export const followKeys = () => document.addEventListener("keydown", onKeyDown);
