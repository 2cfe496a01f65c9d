import { paintSelectedHead } from "./attention.js";
import { paintCharts } from "./curves.js";
import { displayedPass, renderDiagram } from "./diagram/diagram.js";
import { selectKind } from "./input.js";
import { state } from "./state.js";
import { renderTimeline } from "./timeline.js";
import { $, root } from "./view.js";

let renderScheduled = false;

export function scheduleRender() {
  if (renderScheduled) return;
  renderScheduled = true;
  requestAnimationFrame(() => {
    renderScheduled = false;
    if (!root.clientWidth || !state.metricCurve) return;
    paintCharts();
    renderTimeline();
    if (!state.displayedSnapshot || !state.probeInfo) return;
    $(".probe").textContent =
      displayedPass()
        .source.filter((token) => token !== "EOS")
        .join(" ") +
      " · step " +
      state.displayedSnapshot.step.toLocaleString("en");
    const kinds = Object.keys(state.displayedSnapshot.attention);
    for (const button of $(".kinds").children) button.hidden = !kinds.includes(button.dataset.kind);
    $(".attention").classList.toggle("none", !kinds.length);
    if (kinds.length && !kinds.includes(state.selectedKind)) selectKind(kinds[0]);
    renderDiagram();
    if (!kinds.length) {
      $(".focus figcaption").textContent = "";
      return;
    }
    paintSelectedHead();
  });
}
