// ---------------------------------------------------------------- drawing
// Up to eight curves: the accent for the run on show, then colours after Okabe and Ito for those laid over it, that differ from the
// accent and from each other in light and in dark; every second one is dashed as well.
const OVERLAY = [["#d98200", "#ffb000"], ["#00795a", "#2fd6a5"], ["#b8478c", "#f08fc4"], ["#c0392b", "#ff7b61"], ["#6b7280", "#c3c8d1"], ["#7a5c00", "#d9c34a"], ["#5b3fc4", "#b7a4ff"]];
const overlayColour = (place) => OVERLAY[place][document.body.classList.contains("dark") ? 1 : 0];
const impossible = (row, column) => kind === "decoder" && column > row;

function heat(c, weights, rows, columns, x, y, cw, ch) {
  for (let r = 0; r < rows; r++)
    for (let k = 0; k < columns; k++) {
      if (impossible(r, k)) continue;
      c.fillStyle = ramp(weights[r * columns + k]);
      c.fillRect(x + k * cw, y + r * ch, Math.ceil(cw), Math.ceil(ch));
    }
  if (kind === "decoder") {
    // The future cannot be looked at: hatched, which is not the same as a weight of zero.
    c.save();
    c.beginPath();
    for (let r = 0; r < rows; r++) c.rect(x + (r + 1) * cw, y + r * ch, (columns - r - 1) * cw, ch);
    c.clip();
    c.strokeStyle = css("--pg-hatch"); c.lineWidth = 1; c.beginPath();
    for (let d = -rows * ch; d < columns * cw; d += 6) { c.moveTo(x + d, y + rows * ch); c.lineTo(x + d + rows * ch, y); }
    c.stroke(); c.restore();
  }
}

function drawHeads() {
  const box = $(".heads"), layers = shown.attention[kind], [rows, columns] = stage.axes[kind].map((names) => names.length);
  const signature = layers.map((l) => l.length).join();
  if (box.dataset.signature !== signature) {
    box.dataset.signature = signature;
    box.replaceChildren(...layers.flatMap((heads, l) => {
      const label = document.createElement("div");
      label.className = "layer"; label.textContent = "layer " + (l + 1) + (l ? "" : heads.length === 1 ? ", one head" : ", heads 1 to " + heads.length);
      return [label, ...heads.map((_, h) => {
        const button = document.createElement("button");
        button.type = "button"; button.className = "head"; button.dataset.layer = l; button.dataset.head = h;
        button.setAttribute("aria-label", "layer " + (l + 1) + ", head " + (h + 1));
        button.append(document.createElement("canvas"));
        return button;
      })];
    }));
    head = headOfLink(layers) || [layers.length - 1, 0];
  }
  const across = Math.min(layers[0].length, 8);
  box.style.gridTemplateColumns = across === 1 ? "112px" : "repeat(" + across + ", minmax(0, 1fr))";
  for (const button of box.querySelectorAll(".head")) {
    const l = +button.dataset.layer, h = +button.dataset.head;
    button.setAttribute("aria-pressed", String(l === head[0] && h === head[1]));
    const canvas = button.firstChild, width = canvas.clientWidth;
    if (!width) continue;
    const [c, w, height] = prepare(canvas, Math.round((width * rows) / columns));
    heat(c, layers[l][h], rows, columns, 0, 0, w / columns, height / rows);
  }
}

function drawFocus() {
  const canvas = $(".focus-map"), [rows, columns] = stage.axes[kind];
  const weights = shown.attention[kind][head[0]][head[1]], left = 40, top = 22;
  const size = Math.min(31, (canvas.clientWidth - left) / columns.length);
  const [c] = prepare(canvas, Math.round(top + size * rows.length + 2));
  c.font = (size < 16 ? 9 : 12) + "px " + css("--font-mono"); c.textBaseline = "middle"; c.fillStyle = css("--body-text-color");
  c.textAlign = "center";
  columns.forEach((name, k) => c.fillText(name, left + (k + 0.5) * size, top / 2));
  c.textAlign = "right";
  rows.forEach((name, r) => c.fillText(name, left - 8, top + (r + 0.5) * size));
  heat(c, weights, rows.length, columns.length, left, top, size, size);
  c.strokeStyle = css("--border-color-primary"); c.strokeRect(left - 0.5, top - 0.5, size * columns.length + 1, size * rows.length + 1);
  if (hoverCell && hoverCell[0] < rows.length && hoverCell[1] < columns.length) {
    c.strokeStyle = css("--pg-mark"); c.lineWidth = 2;
    c.strokeRect(left + hoverCell[1] * size, top + hoverCell[0] * size, size, size);
  }
  const caption = $("figcaption"), where = "Layer " + (head[0] + 1) + ", head " + (head[1] + 1) + ". ";
  if (hoverCell && hoverCell[0] < rows.length && hoverCell[1] < columns.length) {
    const [r, k] = hoverCell, from = spec().from + " " + (r + 1) + " (" + rows[r] + ")", to = spec().to + " " + (k + 1) + " (" + columns[k] + ")";
    caption.textContent = where + (impossible(r, k) ? from + " cannot look at " + to + ": it lies in the future"
      : from + " attends to " + to + " with weight " + (weights[r * columns.length + k] / 1000).toFixed(3));
  } else caption.textContent = where + spec().reading + (document.body.classList.contains("dark") ? " Dark is 0, bright is 1." : " White is 0, dark is 1.");
}

// Min and max of every pixel column: a curve of any length costs as much to draw as the canvas is wide.
function decimate(values, x, width) {
  if (values.length <= 2 * width) return values;
  const columns = new Map();
  for (const v of values) {
    const at = Math.floor(x(v[0])), seen = columns.get(at);
    if (!seen) columns.set(at, [v, v]);
    else { if (v[1] < seen[0][1]) seen[0] = v; if (v[1] > seen[1][1]) seen[1] = v; }
  }
  return [...columns.values()].flatMap(([a, b]) => (a[0] < b[0] ? [a, b] : a === b ? [a] : [b, a]));
}

// The steps that the axis spans: it grows in a few jumps, not with every point.
function span() {
  const step = last.step || 1, own = (() => {
    if (ENDED.includes(status)) return Math.max(step, 1);
    if (last.steps <= 1000) return Math.max(step, last.steps);
    let most = 1000;
    while (most < step) most *= String(most)[0] === "2" ? 2.5 : 2;
    return Math.max(step, Math.min(most, last.steps || most));
  })();
  return Math.max(own, ...[...overlays.values()].map(({ curve: c }) => (c && c.steps.length ? c.steps[c.steps.length - 1] : 0)));
}
const LEFT = 44, RIGHT = 8; // of a chart; the scrubber below lines up with them

function chart(canvas, series, range, ticks, label) {
  const [c, width, height] = prepare(canvas);
  const left = LEFT, right = width - RIGHT, top = 8, bottom = height - 20, maxStep = span();
  const x = (step) => left + ((right - left) * step) / maxStep, y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0] || 1);
  c.font = "12px " + css("--font"); c.textBaseline = "middle"; c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = css("--pg-grid"); c.beginPath(); c.moveTo(left, Math.round(y(value)) + 0.5); c.lineTo(right, Math.round(y(value)) + 0.5); c.stroke();
    c.fillStyle = css("--pg-quiet-text"); c.textAlign = "right"; c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic"; c.textAlign = "left"; c.fillText("0", left, height - 4);
  c.textAlign = "right"; c.fillText("step " + maxStep.toLocaleString("en"), right, height - 4);
  // Where somebody changed the learning rate on the way.
  for (const [step, setting] of last.changes || []) {
    if (setting !== "learning_rate" || !step) continue;
    c.strokeStyle = css("--pg-quiet"); c.setLineDash([2, 3]); c.beginPath(); c.moveTo(x(step), top); c.lineTo(x(step), bottom); c.stroke(); c.setLineDash([]);
  }
  c.save(); c.beginPath(); c.rect(left - 4, top - 5, right - left + 8, bottom - top + 10); c.clip();
  for (const { values, colour, dots, dashed } of series) {
    c.strokeStyle = c.fillStyle = colour; c.lineWidth = 1.6; c.lineJoin = "round"; c.setLineDash(dashed ? [6, 3] : []); c.beginPath();
    decimate(values, x, right - left).forEach(([step, v], i) => (i ? c.lineTo(x(step), y(v)) : c.moveTo(x(step), y(v))));
    c.stroke(); c.setLineDash([]);
    if ((dots && values.length <= 40) || values.length === 1) for (const [step, v] of values) { c.beginPath(); c.arc(x(step), y(v), 2, 0, 7); c.fill(); }
  }
  c.restore();
  for (const [step, colour] of [[viewed, "--pg-accent"], [hoverStep, "--pg-mark"]]) {
    if (step === null) continue;
    c.strokeStyle = css(colour); c.lineWidth = 1; c.beginPath(); c.moveTo(Math.round(x(step)) + 0.5, top); c.lineTo(Math.round(x(step)) + 0.5, bottom); c.stroke();
  }
  canvas.toStep = (px) => Math.round(((px - left) / (right - left)) * maxStep);
  if (!count && !ENDED.includes(status)) { c.fillStyle = css("--pg-quiet-text"); c.textAlign = "center"; c.fillText(label, (left + right) / 2, (top + bottom) / 2); }
}

function drawCharts() {
  const log = $(".log").checked && metric !== "learning_rate", scale = log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const line = (c) => c.steps.map((step, i) => [step, scale(c[metric][i])]);
  const laid = [...overlays.values()].filter((o) => o.curve);
  const series = [...laid.map((o) => ({ values: line(o.curve), colour: overlayColour(o.place), dashed: o.place % 2 })), { values: line(curve), colour: css("--pg-accent") }];
  let low = log ? Infinity : 0, high = -Infinity;
  for (const { values } of series) for (const [, v] of values) { if (v < low) low = v; if (v > high) high = v; }
  if (high === -Infinity) { low = log ? -2 : 0; high = log ? 0.5 : metric === "loss" ? 3 : 0.01; }
  if (log) low = Math.min(low, high - 1.5);
  const ticks = [];
  if (log) for (let e = Math.floor(low); e <= Math.ceil(high); e++) { if (e >= low && e <= high + 0.1) ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]); }
  if (log && ticks.length < 3) for (const [e] of [...ticks, [Math.floor(low)]]) { const v = e + Math.log10(3); if (v >= low && v <= high + 0.1) ticks.push([v, number(3 * 10 ** e)]); }
  if (!log) {
    high = high * 1.05 || 1;
    const rough = high / 4, ten = 10 ** Math.floor(Math.log10(rough)), unit = ten * [1, 2, 5, 10].find((m) => m * ten >= rough);
    for (let v = 0; v <= high; v += unit) ticks.push([v, number(+v.toPrecision(6))]);
  }
  chart($(".loss-chart"), series, [low - (log ? 0.1 : 0), high + (log ? 0.1 : 0)], ticks, "the curve appears with the first step");
  const exact = (list) => list.map((s) => [s[0], s[1]]);
  chart($(".score-chart"), [
    ...(laid.length ? [] : [{ values: scored.map((s) => [s[0], s[2]]), colour: css("--pg-quiet") }]),
    ...laid.map((o) => ({ values: exact(o.curve.scored), colour: overlayColour(o.place), dashed: o.place % 2, dots: true })),
    { values: exact(scored), colour: css("--pg-accent"), dots: true },
  ], [0, 1], [[0, "0"], [0.5, "50 %"], [1, "100 %"]], "first score after a few steps");
  $(".loss-chart").steps = curve.steps; // what is drawn, for whoever wants to check
  $(".legend").style.visibility = laid.length ? "hidden" : "";
  const asked = hoverStep === null ? viewed : hoverStep, at = asked === null ? curve.steps.length - 1 : nearest(curve.steps, asked);
  const told = (step) => (asked === null ? "" : " at step " + step.toLocaleString("en"));
  $(".loss-value").textContent = at >= 0 && curve.steps.length ? number(curve[metric][at]) + told(curve.steps[at]) : "";
  const q = scored.length && (asked === null || asked >= scored[0][0]) ? scored[asked === null ? scored.length - 1 : nearest(scored.map((s) => s[0]), asked)] : null;
  $(".score-value").textContent = q ? percent(q[1]) + told(q[0]) : "";
  $(".score-value").title = q ? "of " + plural(q[3], "held-out sequence") + "; symbols " + percent(q[2]) : "";
}
// The place of the value nearest to `step` in a sorted list; the later one of two.
function nearest(sorted, step) {
  let low = 0, high = sorted.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (sorted[middle] <= step) low = middle; else high = middle - 1; }
  return low + 1 < sorted.length && sorted[low + 1] - step <= Math.abs(step - sorted[low]) ? low + 1 : low;
}

// Symbols of an answer, the wrong ones marked by underline and weight as well as by colour.
function spell(box, given, answer) {
  box.replaceChildren();
  for (let i = 0; i < Math.max(given.length, answer.length); i++) {
    const wrong = given[i] !== answer[i], symbol = document.createElement("span");
    const [glyph, meaning] = given[i] === undefined ? ["_", "missing"] : GLYPHS[given[i]] || [given[i], ""];
    symbol.textContent = glyph;
    if (wrong) {
      symbol.className = "wrong";
      symbol.title = [meaning, answer[i] === undefined ? "extra token" : "should be " + answer[i]].filter(Boolean).join("; ");
    }
    box.append(symbol, " ");
  }
  const verdict = document.createElement("span"), right = given.join() === answer.join();
  verdict.textContent = right ? "✓" : "✗"; verdict.className = right ? "ok" : "wrong"; verdict.style.textDecoration = "none";
  verdict.setAttribute("aria-label", right ? "right" : "wrong");
  box.append(verdict);
}

function drawSamples() {
  if (!shown) return;
  const body = $(".samples tbody");
  body.replaceChildren(...shown.samples.map(({ source, answer, given }) => {
    const row = document.createElement("tr"), cells = [0, 1, 2].map(() => row.insertCell());
    cells[0].textContent = source.join(" "); cells[1].textContent = "→";
    spell(cells[2], given, answer);
    return row;
  }));
  $(".samples").classList.toggle("long", shown.samples.some((s) => s.source.length > 12));
  const right = shown.samples.filter((s) => s.given.join() === s.answer.join()).length;
  $(".right-of").textContent = right + " of " + shown.samples.length + " right" + (viewed === null ? "" : " at step " + shown.step);
}

function drawLengths() {
  const box = $(".lengths");
  box.hidden = !scores;
  if (!scores) return;
  box.querySelector("tbody").replaceChildren(...scores.by_length.map((s) => {
    const row = document.createElement("tr");
    for (const text of [s.length, s.n, s.available === null ? "over 10,000" : s.available.toLocaleString("en"), s.exact_match === null ? "none held out" : percent(s.exact_match)]) row.insertCell().textContent = text;
    return row;
  }));
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!root.clientWidth || !curve) return;
    drawCharts(); drawRewind();
    if (!shown || !stage) return;
    $(".probe").textContent = "on " + stage.source.slice(0, -1).join(" ") + " · step " + shown.step.toLocaleString("en");
    const kinds = Object.keys(shown.attention);
    for (const button of $(".kinds").children) button.hidden = !kinds.includes(button.dataset.kind);
    $(".attention").classList.toggle("none", !kinds.length);
    if (!kinds.length) { $("figcaption").textContent = "This architecture has no attention; it passes the input on as one vector."; return; }
    if (!kinds.includes(kind)) setKind(kinds[0]);
    drawHeads(); drawFocus();
  });
}
