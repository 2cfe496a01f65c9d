// The curves of the matched architectures.
import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { request } from "../shared/api.js";
import { navigate, sleepWhileHidden } from "../shared/common.js";
import { formatCount, formatDuration, formatPercent } from "../shared/format.js";
import { el } from "../shared/dom.js";
import {
  ACTIVE_STATUSES,
  matchedArchitectures,
  SERIES_COLORS,
  TARGET_SCORE,
} from "./matched_parameters.js";
import { state } from "./state.js";
import { saveLocal } from "./storage.js";
import { root } from "./view.js";

export async function pollCurves() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(500);
    if (
      !state.owner ||
      !matchedArchitectures.runs.length ||
      document.hidden ||
      !state.architecturesView.body.offsetParent
    )
      continue;
    if (
      matchedArchitectures.curves.length < matchedArchitectures.runs.length ||
      matchedArchitectures.curves.some((each) => ACTIVE_STATUSES.includes(each.status)) ||
      round % 10 === 0
    )
      await loadCurves();
  }
}
export async function loadCurves() {
  const runs = matchedArchitectures.runs;
  let response;
  try {
    response = await request("architectures/curves", {
      owner: state.owner,
      subjects: runs.map((each) => each.subject),
    });
  } catch (error) {
    return;
  }
  if (runs !== matchedArchitectures.runs) return;
  if (response.curves.length < runs.length) {
    matchedArchitectures.runs = runs.filter((each) =>
      response.curves.some((curve) => curve.subject === each.subject),
    );
    saveLocal("families", matchedArchitectures.runs);
  } // runs that were deleted
  matchedArchitectures.curves = response.curves;
  renderRuns();
  paintCurves();
}
export const seriesColor = (i) =>
  SERIES_COLORS[i % SERIES_COLORS.length][document.body.classList.contains("dark") ? 1 : 0];
export function renderRuns() {
  const rows = matchedArchitectures.runs.map((each, i) => {
    const curve = matchedArchitectures.curves.find((other) => other.subject === each.subject) || {
        status: "waiting",
        evaluations: [],
        step: 0,
        name: "",
      },
      signature = JSON.stringify([
        each.subject,
        curve.status,
        curve.step,
        curve.reached,
        curve.queue_position,
        i,
      ]);
    const before = [...state.architecturesView.body.children].find(
      (row) => row.dataset.subject === each.subject,
    );
    if (before && before.dataset.signature === signature) return before;
    const last = curve.evaluations.length ? curve.evaluations[curve.evaluations.length - 1] : null,
      how =
        curve.status === "waiting" && curve.queue_position
          ? "queued"
          : curve.status === "done" || curve.status === "stopped"
            ? curve.status + " at step " + curve.step.toLocaleString("en")
            : curve.status +
              (curve.step
                ? ", step " +
                  curve.step.toLocaleString("en") +
                  " of " +
                  curve.steps.toLocaleString("en")
                : "");
    const link = (text, title, act) => {
      const button = el("button", { type: "button", className: "quiet", textContent: text, title });
      button.addEventListener("click", act);
      return button;
    };
    const name = el(
      "td",
      { className: "who" },
      el("span", {
        className: "swatch" + (i % 2 ? " dashed" : ""),
        style: "--colour:var(--hue-" + i + ")",
      }),
      el("span", { className: "name", textContent: each.title }),
      el("span", { className: "what", textContent: curve.name.replace(each.title + ": ", "") }),
    );
    const row = el(
      "tr",
      {},
      name,
      el("td", { textContent: how + (curve.message ? ": " + curve.message : "") }),
      el("td", {
        className: "number",
        textContent: curve.parameters ? curve.parameters.toLocaleString("en") : "",
      }),
      el("td", {
        className: "number",
        textContent: curve.reached ? curve.reached[0].toLocaleString("en") : "–",
        title: "The first evaluation with at least 99 % exact match on held-out sequences",
      }),
      el("td", {
        className: "number",
        textContent: curve.reached ? formatDuration(curve.reached[1]) : "–",
        title: "Training time until then",
      }),
      el("td", {
        className: "number",
        textContent: last ? formatPercent(last[1]) : "–",
        title: last
          ? "of " + formatCount(last[3], "held-out sequence") + " at step " + last[0]
          : "",
      }),
      el(
        "td",
        { className: "links" },
        link("Train", "Open this run in the Train tab", () => navigate("Train", each.subject)),
        " ",
        link("Inspect", "Open this run in the Inspect tab", () =>
          navigate("Inspect", { subject: each.subject, step: null }),
        ),
      ),
    );
    row.dataset.subject = each.subject;
    row.dataset.signature = signature;
    row.dataset.architecture = each.architecture;
    row.dataset.reached = curve.reached ? curve.reached[0] : "";
    row.dataset.status = curve.status;
    return row;
  });
  const same =
    rows.length &&
    rows.length === state.architecturesView.body.children.length &&
    rows.every((row, i) => state.architecturesView.body.children[i] === row);
  if (!same)
    state.architecturesView.body.replaceChildren(
      ...(rows.length
        ? rows
        : [
            el(
              "tr",
              { className: "to-come" },
              el(
                "td",
                { colSpan: 7 },
                el("span", {
                  className: "empty",
                  textContent: "No runs yet. Select architectures and press Train.",
                }),
              ),
            ),
          ]),
    );
  root.style.cssText = matchedArchitectures.runs
    .map((_, i) => "--hue-" + i + ":" + seriesColor(i))
    .join(";");
}
export function paintCurves() {
  if (!state.architecturesView.score.clientWidth) return;
  root.style.cssText = matchedArchitectures.runs
    .map((_, i) => "--hue-" + i + ":" + seriesColor(i))
    .join(";");
  const curves = matchedArchitectures.runs.map((each) =>
      matchedArchitectures.curves.find((curve) => curve.subject === each.subject),
    ),
    maxValue = Math.max(
      10,
      ...curves.map((curve) =>
        curve
          ? Math.max(
              curve.step,
              curve.status === "done" ? 0 : Math.min(curve.steps, 2 * Math.max(100, curve.step)),
            )
          : 0,
      ),
    );
  paintLines(
    state.architecturesView.score,
    curves.map((curve) => (curve ? curve.evaluations.map((s) => [s[0], s[1]]) : [])),
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [TARGET_SCORE, "99 %"],
    ],
    maxValue,
  );
  const logs = curves.map((curve) =>
      curve ? curve.loss.map(([step, loss]) => [step, Math.log10(Math.max(loss, 1e-6))]) : [],
    ),
    all = logs.flat().map(([, v]) => v),
    low = Math.floor(Math.min(-1, ...all)),
    high = Math.max(0.5, ...all);
  const ticks = [];
  for (let e = low; e <= high; e++)
    ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
  paintLines(state.architecturesView.loss, logs, [low, high + 0.1], ticks, maxValue);
  state.architecturesView.score.drawn = curves; // tests read this property
}
export function paintLines(canvas, series, range, ticks, maxValue, across = "step", tall = 200) {
  const [c, width, height] = setUpCanvas(canvas, tall),
    left = 44,
    right = width - 8,
    top = 8,
    bottom = height - 22;
  const x = (step) => left + ((right - left) * step) / maxValue,
    y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0]);
  c.font = "12px " + cssVariable("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(value)) + 0.5);
    c.lineTo(right, Math.round(y(value)) + 0.5);
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic";
  c.textAlign = "left";
  c.fillText("0", left, height - 4);
  c.textAlign = "right";
  c.fillText(across + " " + maxValue.toLocaleString("en"), right, height - 4);
  series.forEach((values, i) => {
    c.strokeStyle = c.fillStyle = seriesColor(i);
    c.lineWidth = 1.8;
    c.lineJoin = "round";
    c.setLineDash(i % 2 ? [6, 3] : []);
    c.beginPath();
    values.forEach(([step, v], k) => (k ? c.lineTo(x(step), y(v)) : c.moveTo(x(step), y(v))));
    c.stroke();
    c.setLineDash([]);
  });
}
