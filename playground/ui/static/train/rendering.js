import { paintSelectedHead } from "./attention.js";
import { areChartsReady, paintCharts } from "./curves.js";
import { renderDiagram } from "./diagram/diagram.js";
import { selectKind, state } from "./state.js";
import { $, root } from "./view.js";

let isScheduled = false;

/** Paint the charts, the diagram and the selected head in the next frame. */
export function scheduleRender() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    if (root.clientWidth && state.metricCurve && areChartsReady.value) paint();
  });
}

function paint() {
  paintCharts();
  if (!state.displayedSnapshot || !state.probeInfo) return;
  const kinds = Object.keys(state.displayedSnapshot.attention);
  if (kinds.length && !kinds.includes(state.selectedKind)) selectKind(kinds[0]);
  $(".attention").classList.toggle("none", !kinds.length);
  renderDiagram();
  if (kinds.length) paintSelectedHead();
  else $(".focus figcaption").textContent = "";
}
