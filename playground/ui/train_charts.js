// ---------------------------------------------------------------- drawing
// Up to eight curves: the accent colour for the open run, then the palette of Okabe and Ito for
// overlays. The colours differ in light and dark mode, and every second curve is dashed as well.
const SERIES_COLORS = [
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#c0392b", "#ff7b61"],
  ["#6b7280", "#c3c8d1"],
  ["#7a5c00", "#d9c34a"],
  ["#5b3fc4", "#b7a4ff"],
];
const overlayColor = (place) =>
  SERIES_COLORS[place][document.body.classList.contains("dark") ? 1 : 0];
const isMasked = (row, column) => selectedKind === "decoder" && column > row;

function paintHeatmap(c, weights, rows, columns, x, y, cw, ch) {
  for (let r = 0; r < rows; r++)
    for (let k = 0; k < columns; k++) {
      if (isMasked(r, k)) continue;
      c.fillStyle = scaleColor(weights[r * columns + k]);
      c.fillRect(x + k * cw, y + r * ch, Math.ceil(cw), Math.ceil(ch));
    }
  if (selectedKind === "decoder") {
    // Masked positions are hatched, to distinguish them from a weight of zero.
    c.save();
    c.beginPath();
    for (let r = 0; r < rows; r++) c.rect(x + (r + 1) * cw, y + r * ch, (columns - r - 1) * cw, ch);
    c.clip();
    c.strokeStyle = cssVariable("--pg-hatch");
    c.lineWidth = 1;
    c.beginPath();
    for (let d = -rows * ch; d < columns * cw; d += 6) {
      c.moveTo(x + d, y + rows * ch);
      c.lineTo(x + d + rows * ch, y);
    }
    c.stroke();
    c.restore();
  }
}

function renderHeads() {
  const box = $(".heads"),
    layers = displayedSnapshot.attention[selectedKind],
    [rows, columns] = probeInfo.axes[selectedKind].map((names) => names.length);
  const signature = layers.map((l) => l.length).join();
  if (box.dataset.signature !== signature) {
    box.dataset.signature = signature;
    box.replaceChildren(
      ...layers.flatMap((heads, l) => {
        const label = document.createElement("div");
        label.className = "layer";
        label.textContent =
          "layer " +
          (l + 1) +
          (l ? "" : heads.length === 1 ? ", one head" : ", heads 1 to " + heads.length);
        return [
          label,
          ...heads.map((_, h) => {
            const button = document.createElement("button");
            button.type = "button";
            button.className = "head";
            button.dataset.layer = l;
            button.dataset.head = h;
            button.setAttribute("aria-label", "layer " + (l + 1) + ", head " + (h + 1));
            button.append(document.createElement("canvas"));
            return button;
          }),
        ];
      }),
    );
    selectedHead = linkedHead(layers) || [layers.length - 1, 0];
  }
  const across = Math.min(layers[0].length, 8);
  box.style.gridTemplateColumns = across === 1 ? "112px" : "repeat(" + across + ", minmax(0, 1fr))";
  for (const button of box.querySelectorAll(".head")) {
    const l = +button.dataset.layer,
      h = +button.dataset.head;
    button.setAttribute("aria-pressed", String(l === selectedHead[0] && h === selectedHead[1]));
    const canvas = button.firstChild,
      width = canvas.clientWidth;
    if (!width) continue;
    const [c, w, height] = setUpCanvas(canvas, Math.round((width * rows) / columns));
    paintHeatmap(c, layers[l][h], rows, columns, 0, 0, w / columns, height / rows);
  }
}

function paintSelectedHead() {
  const canvas = $(".focus-map"),
    [rows, columns] = probeInfo.axes[selectedKind];
  const weights = displayedSnapshot.attention[selectedKind][selectedHead[0]][selectedHead[1]],
    left = 40,
    top = 22;
  const size = Math.min(31, (canvas.clientWidth - left) / columns.length);
  const [c] = setUpCanvas(canvas, Math.round(top + size * rows.length + 2));
  c.font = (size < 16 ? 9 : 12) + "px " + cssVariable("--font-mono");
  c.textBaseline = "middle";
  c.fillStyle = cssVariable("--body-text-color");
  c.textAlign = "center";
  columns.forEach((name, k) => c.fillText(name, left + (k + 0.5) * size, top / 2));
  c.textAlign = "right";
  rows.forEach((name, r) => c.fillText(name, left - 8, top + (r + 0.5) * size));
  paintHeatmap(c, weights, rows.length, columns.length, left, top, size, size);
  c.strokeStyle = cssVariable("--border-color-primary");
  c.strokeRect(left - 0.5, top - 0.5, size * columns.length + 1, size * rows.length + 1);
  if (hoverCell && hoverCell[0] < rows.length && hoverCell[1] < columns.length) {
    c.strokeStyle = cssVariable("--pg-mark");
    c.lineWidth = 2;
    c.strokeRect(left + hoverCell[1] * size, top + hoverCell[0] * size, size, size);
  }
  const caption = $(".focus figcaption"),
    where = "Layer " + (selectedHead[0] + 1) + ", head " + (selectedHead[1] + 1) + ". ";
  if (hoverCell && hoverCell[0] < rows.length && hoverCell[1] < columns.length) {
    const [r, k] = hoverCell,
      from = attentionKind().from + " " + (r + 1) + " (" + rows[r] + ")",
      to = attentionKind().to + " " + (k + 1) + " (" + columns[k] + ")";
    caption.textContent =
      where +
      (isMasked(r, k)
        ? from + " cannot attend to " + to + ": it is a later position"
        : from +
          " attends to " +
          to +
          " with weight " +
          (weights[r * columns.length + k] / 1000).toFixed(3));
  } else
    caption.textContent =
      where +
      attentionKind().reading +
      (document.body.classList.contains("dark")
        ? " Dark is 0, bright is 1."
        : " White is 0, dark is 1.");
}

// Minimum and maximum per pixel column: the cost depends on the width of the canvas only.
function decimate(values, x, width) {
  if (values.length <= 2 * width) return values;
  const columns = new Map();
  for (const v of values) {
    const at = Math.floor(x(v[0])),
      extremes = columns.get(at);
    if (!extremes) columns.set(at, [v, v]);
    else {
      if (v[1] < extremes[0][1]) extremes[0] = v;
      if (v[1] > extremes[1][1]) extremes[1] = v;
    }
  }
  return [...columns.values()].flatMap(([a, b]) => (a[0] < b[0] ? [a, b] : a === b ? [a] : [b, a]));
}

// The last step of the axis: it grows in a few jumps, not with every point.
function axisMaxStep() {
  const step = lastResponse.step || 1,
    own = (() => {
      if (TERMINAL_STATUSES.includes(status)) return Math.max(step, 1);
      if (lastResponse.max_steps <= 1000) return Math.max(step, lastResponse.max_steps);
      let maxValue = 1000;
      while (maxValue < step) maxValue *= String(maxValue)[0] === "2" ? 2.5 : 2;
      return Math.max(step, Math.min(maxValue, lastResponse.max_steps || maxValue));
    })();
  return Math.max(
    own,
    ...[...overlays.values()].map(({ curve: c }) =>
      c && c.steps.length ? c.steps[c.steps.length - 1] : 0,
    ),
  );
}
const CHART_LEFT = 44,
  CHART_RIGHT = 8; // the timeline below uses the same margins

function paintChart(canvas, series, range, ticks, label) {
  const [c, width, height] = setUpCanvas(canvas);
  const left = CHART_LEFT,
    right = width - CHART_RIGHT,
    top = 8,
    bottom = height - 20,
    maxStep = axisMaxStep();
  const x = (step) => left + ((right - left) * step) / maxStep,
    y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0] || 1);
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
  c.fillText("step " + maxStep.toLocaleString("en"), right, height - 4);
  // Steps at which the learning rate was changed during training.
  for (const [step, setting] of lastResponse.changes || []) {
    if (setting !== "learning_rate" || !step) continue;
    c.strokeStyle = cssVariable("--pg-quiet");
    c.setLineDash([2, 3]);
    c.beginPath();
    c.moveTo(x(step), top);
    c.lineTo(x(step), bottom);
    c.stroke();
    c.setLineDash([]);
  }
  c.save();
  c.beginPath();
  c.rect(left - 4, top - 5, right - left + 8, bottom - top + 10);
  c.clip();
  for (const { values, colour: color, dots, dashed } of series) {
    c.strokeStyle = c.fillStyle = color;
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.setLineDash(dashed ? [6, 3] : []);
    c.beginPath();
    decimate(values, x, right - left).forEach(([step, v], i) =>
      i ? c.lineTo(x(step), y(v)) : c.moveTo(x(step), y(v)),
    );
    c.stroke();
    c.setLineDash([]);
    if ((dots && values.length <= 40) || values.length === 1)
      for (const [step, v] of values) {
        c.beginPath();
        c.arc(x(step), y(v), 2, 0, 7);
        c.fill();
      }
  }
  c.restore();
  for (const [step, color] of [
    [viewedStep, "--pg-accent"],
    [hoverStep, "--pg-mark"],
  ]) {
    if (step === null) continue;
    c.strokeStyle = cssVariable(color);
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(step)) + 0.5, top);
    c.lineTo(Math.round(x(step)) + 0.5, bottom);
    c.stroke();
  }
  canvas.toStep = (px) => Math.round(((px - left) / (right - left)) * maxStep);
  if (!pointCount && !TERMINAL_STATUSES.includes(status)) {
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "center";
    c.fillText(label, (left + right) / 2, (top + bottom) / 2);
  }
}

function paintCharts() {
  const log = $(".log").checked && selectedMetric !== "learning_rate",
    scale = log ? (v) => Math.log10(Math.max(v, 1e-9)) : (v) => v;
  const line = (c) => c.steps.map((step, i) => [step, scale(c[selectedMetric][i])]);
  const overlaid = [...overlays.values()].filter((o) => o.curve);
  const series = [
    ...overlaid.map((o) => ({
      values: line(o.curve),
      colour: overlayColor(o.place),
      dashed: o.place % 2,
    })),
    { values: line(metricCurve), colour: cssVariable("--pg-accent") },
  ];
  let low = log ? Infinity : 0,
    high = -Infinity;
  for (const { values } of series)
    for (const [, v] of values) {
      if (v < low) low = v;
      if (v > high) high = v;
    }
  if (high === -Infinity) {
    low = log ? -2 : 0;
    high = log ? 0.5 : selectedMetric === "loss" ? 3 : 0.01;
  }
  if (log) low = Math.min(low, high - 1.5);
  const ticks = [];
  if (log)
    for (let e = Math.floor(low); e <= Math.ceil(high); e++) {
      if (e >= low && e <= high + 0.1)
        ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
    }
  if (log && ticks.length < 3)
    for (const [e] of [...ticks, [Math.floor(low)]]) {
      const v = e + Math.log10(3);
      if (v >= low && v <= high + 0.1) ticks.push([v, formatNumber(3 * 10 ** e)]);
    }
  if (!log) {
    high = high * 1.05 || 1;
    const rough = high / 4,
      ten = 10 ** Math.floor(Math.log10(rough)),
      unit = ten * [1, 2, 5, 10].find((m) => m * ten >= rough);
    for (let v = 0; v <= high; v += unit) ticks.push([v, formatNumber(+v.toPrecision(6))]);
  }
  paintChart(
    $(".loss-chart"),
    series,
    [low - (log ? 0.1 : 0), high + (log ? 0.1 : 0)],
    ticks,
    "the curve appears with the first step",
  );
  const exact = (list) => list.map((s) => [s[0], s[1]]);
  paintChart(
    $(".score-chart"),
    [
      ...(overlaid.length
        ? []
        : [{ values: evaluations.map((s) => [s[0], s[2]]), colour: cssVariable("--pg-quiet") }]),
      ...overlaid.map((o) => ({
        values: exact(o.curve.evaluations),
        colour: overlayColor(o.place),
        dashed: o.place % 2,
        dots: true,
      })),
      { values: exact(evaluations), colour: cssVariable("--pg-accent"), dots: true },
    ],
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [1, "100 %"],
    ],
    "first score after a few steps",
  );
  $(".loss-chart").steps = metricCurve.steps; // tests read this property
  $(".legend").style.visibility = overlaid.length ? "hidden" : "";
  const markedStep = hoverStep === null ? viewedStep : hoverStep,
    at =
      markedStep === null
        ? metricCurve.steps.length - 1
        : nearestIndex(metricCurve.steps, markedStep);
  const atStep = (step) => (markedStep === null ? "" : " at step " + step.toLocaleString("en"));
  $(".loss-value").textContent =
    at >= 0 && metricCurve.steps.length
      ? formatNumber(metricCurve[selectedMetric][at]) + atStep(metricCurve.steps[at])
      : "";
  const q =
    evaluations.length && (markedStep === null || markedStep >= evaluations[0][0])
      ? evaluations[
          markedStep === null
            ? evaluations.length - 1
            : nearestIndex(
                evaluations.map((s) => s[0]),
                markedStep,
              )
        ]
      : null;
  $(".score-value").textContent = q ? formatPercent(q[1]) + atStep(q[0]) : "";
  $(".score-value").title = q
    ? "of " + pluralize(q[3], "held-out sequence") + "; token accuracy " + formatPercent(q[2])
    : "";
}
// Return the index of the value nearest to `step` in a sorted list; ties take the later one.
function nearestIndex(sorted, step) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return low + 1 < sorted.length && sorted[low + 1] - step <= Math.abs(step - sorted[low])
    ? low + 1
    : low;
}

// Tokens of a prediction; wrong ones have an underline and bold type in addition to the colour.
function renderAnswer(box, prediction, target) {
  box.replaceChildren();
  for (let i = 0; i < Math.max(prediction.length, target.length); i++) {
    const isWrong = prediction[i] !== target[i],
      symbol = document.createElement("span");
    const [glyph, meaning] =
      prediction[i] === undefined
        ? ["_", "missing"]
        : SPECIAL_TOKENS[prediction[i]] || [prediction[i], ""];
    symbol.textContent = glyph;
    if (isWrong) {
      symbol.className = "wrong";
      symbol.title = [meaning, target[i] === undefined ? "extra token" : "should be " + target[i]]
        .filter(Boolean)
        .join("; ");
    }
    box.append(symbol, " ");
  }
  const mark = document.createElement("span"),
    isCorrect = prediction.join() === target.join();
  mark.textContent = isCorrect ? "✓" : "✗";
  mark.className = isCorrect ? "ok" : "wrong";
  mark.style.textDecoration = "none";
  mark.setAttribute("aria-label", isCorrect ? "right" : "wrong");
  box.append(mark);
}

function renderSamples() {
  if (!displayedSnapshot) return;
  const body = $(".samples tbody");
  body.replaceChildren(
    ...displayedSnapshot.samples.map(({ source, target, prediction }) => {
      const row = document.createElement("tr"),
        cells = [0, 1, 2].map(() => row.insertCell());
      cells[0].textContent = source.join(" ");
      cells[1].textContent = "→";
      renderAnswer(cells[2], prediction, target);
      return row;
    }),
  );
  $(".samples").classList.toggle(
    "long",
    displayedSnapshot.samples.some((s) => s.source.length > 12),
  );
  const right = displayedSnapshot.samples.filter(
    (s) => s.prediction.join() === s.target.join(),
  ).length;
  $(".right-of").textContent =
    right +
    " of " +
    displayedSnapshot.samples.length +
    " right" +
    (viewedStep === null ? "" : " at step " + displayedSnapshot.step);
}

function renderLengths() {
  const box = $(".lengths");
  box.hidden = !scores;
  if (!scores) return;
  box.querySelector("tbody").replaceChildren(
    ...scores.by_length.map((s) => {
      const row = document.createElement("tr");
      for (const text of [
        s.length,
        s.n,
        s.available === null ? "over 10,000" : s.available.toLocaleString("en"),
        s.exact_match === null ? "none held out" : formatPercent(s.exact_match),
      ])
        row.insertCell().textContent = text;
      return row;
    }),
  );
}

function scheduleRender() {
  if (renderScheduled) return;
  renderScheduled = true;
  requestAnimationFrame(() => {
    renderScheduled = false;
    if (!root.clientWidth || !metricCurve) return;
    paintCharts();
    renderTimeline();
    if (!displayedSnapshot || !probeInfo) return;
    $(".probe").textContent =
      "on " +
      probeInfo.source.slice(0, -1).join(" ") +
      " · step " +
      displayedSnapshot.step.toLocaleString("en");
    const kinds = Object.keys(displayedSnapshot.attention);
    for (const button of $(".kinds").children) button.hidden = !kinds.includes(button.dataset.kind);
    $(".attention").classList.toggle("none", !kinds.length);
    if (!kinds.length) {
      $(".diagram").hidden = true;
      $(".focus figcaption").textContent =
        "This architecture has no attention; it passes the input on as one vector.";
      return;
    }
    if (!kinds.includes(selectedKind)) selectKind(kinds[0]);
    renderHeads();
    renderDiagram();
    paintSelectedHead();
  });
}
