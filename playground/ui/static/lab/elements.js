import { el } from "../shared/dom.js";
import { formatSpread } from "../shared/line_charts.js";

// Add a full stop. The first letter stays, because it may belong to the name of a setting.
export const addPeriod = (text) => (text ? text + (/[.!?]$/.test(text) ? "" : ".") : "");
export const formatQueuePosition = (n) =>
  (n === 1 ? "next" : n === 2 ? "second" : n === 3 ? "third" : n + "th") + " in the queue";
// Format a fraction as the server does: it is never rounded up to 100 %.
export const formatShare = (x) =>
  x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(x < 0.01 ? 1 : 3) + " %";
export const formatRange = (spread, write) =>
  write(spread.median) + formatSpread(spread.low, spread.high, write);

// Update a list: `make(one)` creates a row for a new item, `fill(row, one)` sets its
// content.
export function syncRows(box, list, keyOf, make, fill) {
  const before = new Map([...box.children].map((row) => [row.dataset.key, row]));
  list.forEach((one, at) => {
    const key = String(keyOf(one)),
      row = before.get(key) || make(one);
    row.dataset.key = key;
    before.delete(key);
    fill(row, one);
    if (box.children[at] !== row) box.insertBefore(row, box.children[at] || null);
  });
  for (const row of before.values()) row.remove();
}
// A button that requires a second click for an action that cannot be undone.
export function createConfirmButton(text, confirmLabel, onConfirm) {
  const button = el("button", { type: "button", className: "quiet", textContent: text });
  let isConfirming = false;
  const reset = () => {
    isConfirming = false;
    button.textContent = text;
    button.classList.remove("sure");
  };
  button.addEventListener("click", () => {
    if (isConfirming) {
      reset();
      onConfirm();
    } else {
      isConfirming = true;
      button.textContent = confirmLabel;
      button.classList.add("sure");
    }
  });
  button.addEventListener("blur", reset);
  return button;
}
