import { paintSelectedHead, renderHeads } from "./attention.js";
import { paintCharts } from "./curves.js";
import { selectKind } from "./input.js";
import { renderDiagram } from "./model_diagram.js";
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
      "on " +
      state.probeInfo.source.slice(0, -1).join(" ") +
      " · step " +
      state.displayedSnapshot.step.toLocaleString("en");
    const kinds = Object.keys(state.displayedSnapshot.attention);
    for (const button of $(".kinds").children) button.hidden = !kinds.includes(button.dataset.kind);
    $(".attention").classList.toggle("none", !kinds.length);
    if (!kinds.length) {
      $(".diagram").hidden = true;
      $(".focus figcaption").textContent =
        "This architecture has no attention; it passes the input on as one vector.";
      return;
    }
    if (!kinds.includes(state.selectedKind)) selectKind(kinds[0]);
    renderHeads();
    renderDiagram();
    paintSelectedHead();
  });
}
