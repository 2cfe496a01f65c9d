// Pointer and keyboard input.
import { store } from "../shared/store.js";
import { html, render } from "../vendor/preact.js";
import { SequenceInput } from "../shell/model_bar.js";
import { scheduleRender } from "./rendering.js";
import { state } from "./state.js";
import { METRICS } from "./status.js";
import { embeddedView } from "./share_dialog.js";
import { $, onResizeOrThemeChange } from "./view.js";

export function selectKind(kind) {
  state.selectedKind = kind;
  state.hoverCell = null;
  for (const each of $(".kinds").children)
    each.setAttribute("aria-pressed", String(each.dataset.kind === kind));
}
const focusCanvas = $(".focus-map");
function hitTest(event) {
  if (!state.probeInfo || !state.probeInfo.axes[state.selectedKind]) return null;
  const [rows, columns] = state.probeInfo.axes[state.selectedKind].map((names) => names.length),
    size = Math.min(31, (focusCanvas.clientWidth - 40) / columns);
  const cell = [Math.floor((event.offsetY - 22) / size), Math.floor((event.offsetX - 40) / size)];
  return cell[0] >= 0 && cell[1] >= 0 && cell[1] < columns && cell[0] < rows ? cell : null;
}

export function initInput() {
  if (embeddedView) render(html`<${SequenceInput} />`, $(".embedded-input"));
  $(".samples").addEventListener("click", (event) => {
    const sample = event.target.closest(".sample");
    if (!sample) return;
    store.setInput(sample.textContent);
  });
  $(".log").addEventListener("change", scheduleRender);
  $(".smoothing").addEventListener("input", scheduleRender);
  $(".metric").addEventListener("change", (event) => {
    state.selectedMetric = event.target.value;
    event.target.title = METRICS[state.selectedMetric][1];
    $(".switch").style.visibility = state.selectedMetric === "learning_rate" ? "hidden" : "";
    scheduleRender();
  });
  $(".kinds").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) {
      selectKind(button.dataset.kind);
      scheduleRender();
    }
  });
  focusCanvas.addEventListener("pointermove", (event) => {
    state.hoverCell = hitTest(event);
    scheduleRender();
  });
  focusCanvas.addEventListener("pointerleave", () => {
    state.hoverCell = null;
    scheduleRender();
  });
  focusCanvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
      event.key
    ];
    if (!move || !state.probeInfo || !state.probeInfo.axes[state.selectedKind]) return;
    event.preventDefault();
    const [r, k] = state.hoverCell || [0, 0],
      [rows, columns] = state.probeInfo.axes[state.selectedKind];
    state.hoverCell = state.hoverCell
      ? [
          Math.max(0, Math.min(rows.length - 1, r + move[0])),
          Math.max(0, Math.min(columns.length - 1, k + move[1])),
        ]
      : [0, 0];
    scheduleRender();
  });
  focusCanvas.addEventListener("blur", () => {
    state.hoverCell = null;
    scheduleRender();
  });
  onResizeOrThemeChange(scheduleRender);
}
