// Head roles, ablation, logit lens.
// Measurements on hundreds of held-out sequences are slow and do not depend on the user's sequence.
// These views request the answer to that sequence quickly, and cache the measurements by model and
// step.
import { colorTable, scaleColor } from "../shared/palette.js";
import { formatCount, formatNumber } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { redrawView, requestView } from "./requests.js";
import { state } from "./state.js";

export const slowResults = new Map(); // cache key -> { data, error, busy, of }
export const cacheKey = (view, options) =>
  JSON.stringify([
    state.subject,
    view === "heads-over-training" ? null : state.step,
    view,
    options,
  ]);
// Request a measurement once. `of` is the answer that is displayed at the time of the request. The
// previous result stays until a newer one arrives.
export async function loadSlowView(view, options, viewToRedraw, displayedResult) {
  const key = cacheKey(view, options),
    cached = slowResults.get(key);
  if (cached && cached.busy) return;
  slowResults.set(key, { ...cached, busy: true, error: "", of: displayedResult });
  redrawView(viewToRedraw);
  const data = await requestView(view, options);
  slowResults.set(
    key,
    data.error
      ? { ...cached, busy: false, error: data.error, of: displayedResult }
      : { data, of: displayedResult },
  );
  redrawView(viewToRedraw);
}
export const describeSample = (data) =>
  "over " +
  formatCount(data.sequences, "held-out sequence") +
  " of " +
  (data.lengths[0] === data.lengths[1]
    ? formatCount(data.lengths[0], "token")
    : data.lengths.join(" to ") + " tokens");
export const shortHeadName = (head) => head.kind + " " + head.layer + "." + head.head;
export const formatWithMinusSign = (x) => formatNumber(x).replace("-", "−");
export const formatSigned = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + formatNumber(Math.abs(x));
// Shade a cell so that its number stays readable.
export function shadeCell(cell, share) {
  const thousandths = Math.round(1000 * Math.max(0, Math.min(1, share)));
  cell.style.setProperty("background-color", scaleColor(thousandths), "important");
  // Use the text colour with the higher contrast (relative luminance and contrast of WCAG 2).
  const light = colorTable()[thousandths].map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  cell.style.color = 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
}
// A bar from zero to `value` on an axis from `low` to `high`.
export function signedBar(value, low, high, className) {
  const bar = el("div", { className: className + " bar" + (value < 0 ? " below" : "") }),
    span = high - low || 1;
  bar.style.left = (100 * (Math.min(0, value) - low)) / span + "%";
  bar.style.width = (100 * Math.abs(value)) / span + "%";
  const axis = el("div", { className: className + "-axis" }, bar);
  axis.style.setProperty("--zero", (100 * (0 - low)) / span + "%");
  return axis;
}
