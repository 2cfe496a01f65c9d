import { sendCommand } from "./controls.js";
import { loadSettings } from "./saved_checkpoints.js";
import { state } from "./state.js";
import { $, addViewListener, root } from "./view.js";

export const pageUrl = () => location.origin + location.pathname;

// ---- keyboard
function onKeyDown(event) {
  // Another tab handled the event, or the view is hidden.
  if (event.defaultPrevented || !root.offsetParent) return;
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, textarea, select, [contenteditable], dialog, [role=tab]")
  )
    return;
  const onButton = event.target.closest("button, summary, canvas, a");
  if (event.key === " " && !onButton && ["training", "paused"].includes(state.status)) {
    event.preventDefault();
    sendCommand(state.status === "paused" ? "resume" : "pause");
  } else if (
    event.key === "ArrowRight" &&
    event.target.tagName !== "CANVAS" &&
    state.status === "paused"
  ) {
    event.preventDefault();
    sendCommand("step");
  } else if (event.key === "?") $(".keys").showModal();
}

export function initShortcuts() {
  $(".use-these").addEventListener("click", () => {
    $(".sharing").close();
    loadSettings(state.modelRef);
  });
  for (const button of root.querySelectorAll(".copy"))
    button.addEventListener("click", async () => {
      const box = button.parentElement.querySelector("input, textarea");
      box.select();
      try {
        await navigator.clipboard.writeText(box.value);
      } catch (error) {
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 1500);
    });
  for (const dialog of root.querySelectorAll("dialog"))
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest(".close")) dialog.close();
    });
  addViewListener(document, "keydown", onKeyDown);
  $(".show-keys").addEventListener("click", () => $(".keys").showModal());
}
