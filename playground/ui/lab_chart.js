// ---------------------------------------- charts: lines with bands, and a heat map
// Colours after Okabe and Ito, for light and dark mode. Each has its own dash pattern, so lines
// never
// differ by colour alone.
const HUES = [
  ["#1f6fb2", "#5aa7e0"],
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#c0392b", "#ff7b61"],
  ["#6b7280", "#c3c8d1"],
  ["#7a5c00", "#d9c34a"],
  ["#5b3fc4", "#b7a4ff"],
];
const DASHES = [[], [7, 3], [2, 2.5], [9, 3, 2, 3]];
const hueOf = (i) => HUES[i % HUES.length][document.body.classList.contains("dark") ? 1 : 0];
const dashOf = (i) => DASHES[(i + Math.floor(i / HUES.length)) % DASHES.length];
const pictures = new WeakMap(); // canvas -> {chart data, selected position}

function swatch(canvas, i) {
  if (!canvas.clientWidth) return;
  const [c, width, height] = prepare(canvas, 12);
  c.strokeStyle = hueOf(i);
  c.lineWidth = 2.4;
  c.setLineDash(dashOf(i));
  c.beginPath();
  c.moveTo(0, height / 2);
  c.lineTo(width, height / 2);
  c.stroke();
}
// Make a canvas readable by pointer and keys: `move(event)` returns the item under the pointer, and
// `step(at, by)` the next item for an arrow key.
function picture(canvas, drawn, paint, move, step) {
  const known = pictures.get(canvas),
    it = known || { at: null };
  Object.assign(it, { drawn, paint });
  if (!known) {
    pictures.set(canvas, it);
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    const to = (at) => {
      it.at = at;
      it.paint(canvas, it);
    };
    for (const kind of ["pointermove", "pointerdown"])
      canvas.addEventListener(kind, (event) => to(move(canvas, it, event)));
    canvas.addEventListener("pointerleave", () => to(null));
    canvas.addEventListener("blur", () => to(null));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
        event.key
      ];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      to(step(it, by));
    });
  }
  paint(canvas, it);
}

// Draw lines over x, each with a band. `drawn`: series [{label, place, xs, median, low, high}], the
// ranges x and y, ticks [[y, text]], marks on the x axis, what (the name of x), write(y), caption,
// rest (the default caption), log, shaded [from, to].
const chartOf = (canvas, drawn) =>
  picture(
    canvas,
    drawn,
    paintLines,
    (_, it, event) => {
      const xs = axisOf(it.drawn);
      return xs.length && it.toX ? nearestOf(xs, it.toX(event.offsetX)) : null;
    },
    (it, [down, right]) => {
      const xs = axisOf(it.drawn),
        by = right || -down;
      if (!xs.length) return null;
      const at = xs.indexOf(it.at);
      return xs[at < 0 ? xs.length - 1 : Math.max(0, Math.min(xs.length - 1, at + by))];
    },
  );
const axisOf = (drawn) =>
  [...new Set(drawn.series.flatMap((each) => each.xs))].sort((a, b) => a - b);
const nearestOf = (xs, x) =>
  xs.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best));
function paintLines(canvas, it) {
  if (!canvas.clientWidth) return;
  const d = it.drawn,
    [c, width, height] = prepare(canvas, 220),
    left = 46,
    right = width - 12,
    top = 8,
    bottom = height - 24;
  const scale = d.log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const x = (v) => left + ((right - left) * (v - d.x[0])) / (d.x[1] - d.x[0] || 1),
    y = (v) => bottom - ((bottom - top) * (scale(v) - d.y[0])) / (d.y[1] - d.y[0] || 1);
  it.toX = (px) => d.x[0] + ((px - left) / (right - left)) * (d.x[1] - d.x[0]);
  c.font = "12px " + css("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  if (d.shaded) {
    c.fillStyle = css("--pg-grid");
    c.globalAlpha = 0.55;
    c.fillRect(x(d.shaded[0]), top, x(d.shaded[1]) - x(d.shaded[0]), bottom - top);
    c.globalAlpha = 1;
    c.strokeStyle = css("--pg-mark");
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(x(d.shaded[1]), top);
    c.lineTo(x(d.shaded[1]), bottom);
    c.stroke();
    c.setLineDash([]);
    c.fillStyle = css("--pg-quiet-text");
    c.textAlign = "left";
    c.fillText("never trained →", x(d.shaded[1]) + 6, top + 30);
  }
  for (const [value, text] of d.ticks) {
    const at = Math.round(y(value)) + 0.5;
    c.strokeStyle = css("--pg-grid");
    c.beginPath();
    c.moveTo(left, at);
    c.lineTo(right, at);
    c.stroke();
    c.fillStyle = css("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, at);
  }
  c.textBaseline = "alphabetic";
  c.fillStyle = css("--pg-quiet-text");
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
    c.fillStyle = hueOf(s.place);
    c.globalAlpha = 0.16;
    c.beginPath();
    bandXs.forEach((v, k) => (k ? c.lineTo(x(v), y(s.high[k])) : c.moveTo(x(v), y(s.high[k]))));
    for (let k = bandXs.length - 1; k >= 0; k--) c.lineTo(x(bandXs[k]), y(s.low[k]));
    c.fill();
    c.globalAlpha = 1;
  }
  for (const s of d.series) {
    c.strokeStyle = c.fillStyle = hueOf(s.place);
    c.lineWidth = 2;
    c.lineJoin = "round";
    c.setLineDash(dashOf(s.place));
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
  if (it.at !== null) {
    c.strokeStyle = css("--pg-mark");
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(it.at)) + 0.5, top);
    c.lineTo(Math.round(x(it.at)) + 0.5, bottom);
    c.stroke();
  }
  const here =
    it.at === null
      ? []
      : d.series
          .map((s) => [s, s.xs.indexOf(it.at)])
          .filter(([, k]) => k >= 0)
          .sort((a, b) => b[0].median[b[1]] - a[0].median[a[1]]);
  const words = here.map(([s, k]) => {
    const b = s.bandXs ? s.bandXs.indexOf(it.at) : k,
      narrow = b < 0 || s.low[b] === s.high[b];
    return (
      s.label + " " + d.write(s.median[k]) + (narrow ? "" : between(s.low[b], s.high[b], d.write))
    );
  });
  put(
    d.caption,
    here.length
      ? d.what +
          " " +
          it.at.toLocaleString("en") +
          ": " +
          words.slice(0, 6).join("; ") +
          (words.length > 6 ? "; and " + (words.length - 6) + " more" : "")
      : d.rest,
  );
  canvas.setAttribute("aria-label", d.title + ". " + d.caption.textContent);
  canvas.series = d.series; // tests read this property
}

// Draw exact match with schemes as rows and lengths as columns. `drawn`: rows [{label, by}] with
// by[length], lengths, trained, caption, rest, title.
const heatOf = (canvas, drawn) =>
  picture(
    canvas,
    drawn,
    paintHeat,
    (_, it, event) => {
      const p = it.places;
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
function paintHeat(canvas, it) {
  if (!canvas.clientWidth) return;
  const d = it.drawn,
    ch = 26,
    top = 22,
    n = d.lengths.length;
  const [c, width] = prepare(canvas, top + ch * d.rows.length + 4);
  c.font = "12px " + css("--font");
  c.textBaseline = "middle";
  const short = (text, room) => {
    let cut = text;
    while (cut.length > 3 && c.measureText(cut).width > room) cut = cut.slice(0, -2) + "…";
    return cut;
  };
  const left = Math.min(
      width * 0.34,
      10 + Math.max(...d.rows.map((row) => c.measureText(row.label).width)),
    ),
    cw = (width - left - 3) / n;
  it.places = { left, top, cw, ch };
  const every = cw >= 19 ? 1 : cw * 5 >= 19 ? 5 : 10;
  c.fillStyle = css("--pg-quiet-text");
  c.textAlign = "center";
  d.lengths.forEach((length, k) => {
    if (every === 1 || length % every === 0 || (k === 0 && every === 5))
      c.fillText(length, left + (k + 0.5) * cw, top / 2);
  });
  d.rows.forEach((row, r) => {
    c.fillStyle = css("--body-text-color");
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
        c.strokeStyle = css("--pg-hatch");
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
      c.fillStyle = ramp(1000 * share);
      c.fillRect(x0, y0, Math.ceil(cw * 10) / 10 + 0.3, ch);
    });
  });
  c.strokeStyle = css("--border-color-primary");
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
    c.strokeStyle = css("--pg-mark");
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(left + end * cw, top - 4);
    c.lineTo(left + end * cw, top + ch * d.rows.length + 3);
    c.stroke();
  }
  if (it.at && it.at[0] < d.rows.length && it.at[1] < n) {
    c.strokeStyle = css("--pg-mark");
    c.lineWidth = 2;
    c.strokeRect(left + it.at[1] * cw, top + it.at[0] * ch + 1, Math.max(cw, 3), ch - 2);
  } else it.at = null;
  const row = it.at && d.rows[it.at[0]],
    length = it.at && d.lengths[it.at[1]];
  put(
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
            : share(row.by[length]) +
              " exact match" +
              (length > d.trained ? ", longer than the training lengths" : "")),
  );
  canvas.setAttribute("aria-label", d.title + ". " + d.caption.textContent);
}
