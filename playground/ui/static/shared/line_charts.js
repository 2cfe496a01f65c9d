// Charts: lines with bands, and a heat map.
import { setUpCanvas } from "./canvas.js";
import { cssVariable, dashOf, resolveColor, scaleColor } from "./palette.js";
import { setText } from "./dom.js";

export const chartStates = new WeakMap(); // canvas -> {chart data, selected position}

// The range of a band in parentheses; empty if it has no width.
export const formatSpread = (low, high, write) =>
  low === high ? "" : " (" + write(low).replace(/ %$/, "") + "–" + write(high) + ")";
export function paintSwatch(canvas, i) {
  if (!canvas.clientWidth) return;
  const [c, width, height] = setUpCanvas(canvas, 12);
  c.strokeStyle = resolveColor(i);
  c.lineWidth = 2.4;
  c.setLineDash(dashOf({ color: i }));
  c.beginPath();
  c.moveTo(0, height / 2);
  c.lineTo(width, height / 2);
  c.stroke();
}
// Make a canvas readable by pointer and keys: `move(event)` returns the item under the pointer, and
// `step(at, by)` the next item for an arrow key.
export function mountChart(canvas, chartData, paint, toPosition, stepPosition) {
  const existing = chartStates.get(canvas),
    state = existing || { at: null };
  Object.assign(state, { drawn: chartData, paint });
  if (!existing) {
    chartStates.set(canvas, state);
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    const to = (at) => {
      state.at = at;
      state.paint(canvas, state);
    };
    for (const kind of ["pointermove", "pointerdown"])
      canvas.addEventListener(kind, (event) => to(toPosition(canvas, state, event)));
    canvas.addEventListener("pointerleave", () => to(null));
    canvas.addEventListener("blur", () => to(null));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
        event.key
      ];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      to(stepPosition(state, by));
    });
  }
  paint(canvas, state);
}

// Draw lines over x, each with a band. `chartData` has the series [{label, colorIndex, xs, median,
// low, high}], the ranges x and y, ticks [[y, text]], marks on the x axis, what (the name of x),
// write(y), caption, rest (the default caption), log, shaded [from, to].
export const lineChart = (canvas, chartData) =>
  mountChart(
    canvas,
    chartData,
    paintLines,
    (_, it, event) => {
      const xs = axisValues(it.drawn);
      return xs.length && it.toX ? nearestValue(xs, it.toX(event.offsetX)) : null;
    },
    (it, [down, right]) => {
      const xs = axisValues(it.drawn),
        by = right || -down;
      if (!xs.length) return null;
      const at = xs.indexOf(it.at);
      return xs[at < 0 ? xs.length - 1 : Math.max(0, Math.min(xs.length - 1, at + by))];
    },
  );
export const axisValues = (chartData) =>
  [...new Set(chartData.series.flatMap((each) => each.xs))].sort((a, b) => a - b);
export const nearestValue = (xs, x) =>
  xs.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best));
export function paintLines(canvas, state) {
  if (!canvas.clientWidth) return;
  const d = state.drawn,
    [c, width, height] = setUpCanvas(canvas, 220),
    left = 46,
    right = width - 12,
    top = 8,
    bottom = height - 24;
  const scale = d.log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const x = (v) => left + ((right - left) * (v - d.x[0])) / (d.x[1] - d.x[0] || 1),
    y = (v) => bottom - ((bottom - top) * (scale(v) - d.y[0])) / (d.y[1] - d.y[0] || 1);
  state.toX = (px) => d.x[0] + ((px - left) / (right - left)) * (d.x[1] - d.x[0]);
  c.font = "12px " + cssVariable("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  if (d.shaded) {
    c.fillStyle = cssVariable("--pg-grid");
    c.globalAlpha = 0.55;
    c.fillRect(x(d.shaded[0]), top, x(d.shaded[1]) - x(d.shaded[0]), bottom - top);
    c.globalAlpha = 1;
    c.strokeStyle = cssVariable("--pg-mark");
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(x(d.shaded[1]), top);
    c.lineTo(x(d.shaded[1]), bottom);
    c.stroke();
    c.setLineDash([]);
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "left";
    c.fillText("never trained →", x(d.shaded[1]) + 6, top + 30);
  }
  for (const [value, text] of d.ticks) {
    const at = Math.round(y(value)) + 0.5;
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, at);
    c.lineTo(right, at);
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, at);
  }
  c.textBaseline = "alphabetic";
  c.fillStyle = cssVariable("--pg-quiet-text");
  d.marks.forEach(([value, text], i) => {
    c.textAlign = i === 0 ? "left" : i === d.marks.length - 1 ? "right" : "center";
    c.fillText(text, i === 0 ? left : Math.min(right, x(value)), height - 5);
  });
  c.save();
  c.beginPath();
  c.rect(left - 3, top - 4, right - left + 6, bottom - top + 8);
  c.clip();
  for (const s of d.series) {
    if (!s.xs.length) continue;
    const bandXs = s.bandXs || s.xs;
    c.fillStyle = resolveColor(s.colorIndex);
    c.globalAlpha = 0.16;
    c.beginPath();
    bandXs.forEach((v, k) => (k ? c.lineTo(x(v), y(s.high[k])) : c.moveTo(x(v), y(s.high[k]))));
    for (let k = bandXs.length - 1; k >= 0; k--) c.lineTo(x(bandXs[k]), y(s.low[k]));
    c.fill();
    c.globalAlpha = 1;
  }
  for (const s of d.series) {
    c.strokeStyle = c.fillStyle = resolveColor(s.colorIndex);
    c.lineWidth = 2;
    c.lineJoin = "round";
    c.setLineDash(dashOf({ color: s.colorIndex }));
    c.beginPath();
    s.xs.forEach((v, k) => (k ? c.lineTo(x(v), y(s.median[k])) : c.moveTo(x(v), y(s.median[k]))));
    c.stroke();
    c.setLineDash([]);
    if (s.xs.length === 1) {
      c.beginPath();
      c.arc(x(s.xs[0]), y(s.median[0]), 3, 0, 7);
      c.fill();
    }
  }
  c.restore();
  if (state.at !== null) {
    c.strokeStyle = cssVariable("--pg-mark");
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(state.at)) + 0.5, top);
    c.lineTo(Math.round(x(state.at)) + 0.5, bottom);
    c.stroke();
  }
  const here =
    state.at === null
      ? []
      : d.series
          .map((s) => [s, s.xs.indexOf(state.at)])
          .filter(([, k]) => k >= 0)
          .sort((a, b) => b[0].median[b[1]] - a[0].median[a[1]]);
  const words = here.map(([s, k]) => {
    const b = s.bandXs ? s.bandXs.indexOf(state.at) : k,
      narrow = b < 0 || s.low[b] === s.high[b];
    return (
      s.label +
      " " +
      d.write(s.median[k]) +
      (narrow ? "" : formatSpread(s.low[b], s.high[b], d.write))
    );
  });
  setText(
    d.caption,
    here.length
      ? d.what +
          " " +
          state.at.toLocaleString("en") +
          ": " +
          words.slice(0, 6).join("; ") +
          (words.length > 6 ? "; and " + (words.length - 6) + " more" : "")
      : d.rest,
  );
  canvas.setAttribute("aria-label", d.title + ". " + d.caption.textContent);
  canvas.series = d.series; // tests read this property
}

// Draw exact match with schemes as rows and lengths as columns. `drawn`: rows [{label, by}] with
// by[length], lengths, trained, write(share), caption, rest, title.
export const heatmapChart = (canvas, chartData) =>
  mountChart(
    canvas,
    chartData,
    paintHeatmap,
    (_, it, event) => {
      const p = it.layout;
      if (!p) return null;
      const r = Math.floor((event.offsetY - p.top) / p.ch),
        k = Math.floor((event.offsetX - p.left) / p.cw);
      return r >= 0 && k >= 0 && r < it.drawn.rows.length && k < it.drawn.lengths.length
        ? [r, k]
        : null;
    },
    (it, [down, right]) =>
      it.at
        ? [
            Math.max(0, Math.min(it.drawn.rows.length - 1, it.at[0] + down)),
            Math.max(0, Math.min(it.drawn.lengths.length - 1, it.at[1] + right)),
          ]
        : [0, 0],
  );
export function paintHeatmap(canvas, state) {
  if (!canvas.clientWidth) return;
  const d = state.drawn,
    ch = 26,
    top = 22,
    n = d.lengths.length;
  const [c, width] = setUpCanvas(canvas, top + ch * d.rows.length + 4);
  c.font = "12px " + cssVariable("--font");
  c.textBaseline = "middle";
  const short = (text, availableWidth) => {
    let cut = text;
    while (cut.length > 3 && c.measureText(cut).width > availableWidth)
      cut = cut.slice(0, -2) + "…";
    return cut;
  };
  const left = Math.min(
      width * 0.34,
      10 + Math.max(...d.rows.map((row) => c.measureText(row.label).width)),
    ),
    cw = (width - left - 3) / n;
  state.layout = { left, top, cw, ch };
  const every = cw >= 19 ? 1 : cw * 5 >= 19 ? 5 : 10;
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.textAlign = "center";
  d.lengths.forEach((length, k) => {
    if (every === 1 || length % every === 0 || (k === 0 && every === 5))
      c.fillText(length, left + (k + 0.5) * cw, top / 2);
  });
  d.rows.forEach((row, r) => {
    c.fillStyle = cssVariable("--body-text-color");
    c.textAlign = "right";
    c.fillText(short(row.label, left - 10), left - 8, top + (r + 0.5) * ch);
    d.lengths.forEach((length, k) => {
      const share = row.by[length],
        x0 = left + k * cw,
        y0 = top + r * ch;
      if (share === undefined) {
        // hatched, to distinguish a missing value from 0 %
        c.save();
        c.beginPath();
        c.rect(x0, y0, cw, ch);
        c.clip();
        c.strokeStyle = cssVariable("--pg-hatch");
        c.lineWidth = 1;
        c.beginPath();
        for (let at = -ch; at < cw + ch; at += 6) {
          c.moveTo(x0 + at, y0 + ch);
          c.lineTo(x0 + at + ch, y0);
        }
        c.stroke();
        c.restore();
        return;
      }
      c.fillStyle = scaleColor(1000 * share);
      c.fillRect(x0, y0, Math.ceil(cw * 10) / 10 + 0.3, ch);
    });
  });
  c.strokeStyle = cssVariable("--border-color-primary");
  c.lineWidth = 1;
  for (let r = 0; r <= d.rows.length; r++) {
    c.beginPath();
    c.moveTo(left, top + r * ch + 0.5);
    c.lineTo(left + n * cw, top + r * ch + 0.5);
    c.stroke();
  }
  c.strokeRect(left - 0.5, top + 0.5, n * cw + 1, ch * d.rows.length);
  const end = d.lengths.filter((length) => length <= d.trained).length;
  if (end < n) {
    c.strokeStyle = cssVariable("--pg-mark");
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(left + end * cw, top - 4);
    c.lineTo(left + end * cw, top + ch * d.rows.length + 3);
    c.stroke();
  }
  if (state.at && state.at[0] < d.rows.length && state.at[1] < n) {
    c.strokeStyle = cssVariable("--pg-mark");
    c.lineWidth = 2;
    c.strokeRect(left + state.at[1] * cw, top + state.at[0] * ch + 1, Math.max(cw, 3), ch - 2);
  } else state.at = null;
  const row = state.at && d.rows[state.at[0]],
    length = state.at && d.lengths[state.at[1]];
  setText(
    d.caption,
    !row
      ? d.rest
      : row.label +
          ", length " +
          length +
          ": " +
          (row.by[length] === undefined
            ? row.n
              ? "no held-out sequences of this length"
              : "not evaluated yet"
            : d.write(row.by[length]) +
              " exact match" +
              (length > d.trained ? ", longer than the training lengths" : "")),
  );
  canvas.setAttribute("aria-label", d.title + ". " + d.caption.textContent);
}
