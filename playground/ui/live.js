// The live view: polls the server for what it does not know yet and draws it. It holds no connection open, and nothing
// it shows is computed here: every number was measured by the process that trains.
const $ = (selector) => element.querySelector(selector);
const root = $(".live");
const ENDED = ["done", "stopped", "failed", "gone", "checkpoint"];
const KINDS = {
  cross: { rows: "written", columns: "source", from: "Answer position", to: "source position", reading: "Down: the right answer, each symbol as it is due. Across: where the model looks in the source." },
  encoder: { rows: "source", columns: "source", from: "Source position", to: "source position", reading: "Down: the source. Across: where each of its positions looks." },
  decoder: { rows: "written", columns: "given", from: "Answer position", to: "given position", reading: "Down: the right answer, each symbol as it is due. Across: what the model was given so far. Hatched: the future." },
};
const GLYPHS = { PAD: ["·", "the model wrote PAD, which fills rows and is never right"], SOS: ["‹", "the model wrote SOS, which starts a target and is never right"] };
let subject, generation = 0, points = [], looks = 0, stage, snapshot, scores, status = "opening", last = {}, kind = "cross", head = [0, 0];
let hoverStep = null, hoverCell = null, asked = 0, askedAt = 0, drawing = false, fresh = true;

// ---------------------------------------------------------------- words and numbers
const number = (x) => (x === 0 ? "0" : x >= 0.0001 ? String(+x.toPrecision(3)) : x.toExponential(1));
const percent = (x) => (x === 1 ? "100 %" : (Math.floor(x * 1000) / 10).toFixed(1) + " %");
const duration = (s) => (s < 60 ? s.toFixed(1) + " s" : Math.floor(s / 60) + " min " + Math.round(s % 60) + " s");
const plural = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");

function sentence() {
  const p = points[points.length - 1], step = p ? p.step : 0;
  const of = last.steps && step < last.steps ? " of " + last.steps.toLocaleString("en") : "";
  const where = stage ? " · " + stage.parameters.toLocaleString("en") + " parameters" + (stage.device ? " · " + stage.device : "") : "";
  const scored = points.findLast((p) => p.exact_match !== undefined);
  const soFar = scored ? " · exact match " + percent(scored.exact_match) + " of " + plural(scored.scored, "held-out sequence") : "";
  const score = scores ? " · exact match " + percent(scores.exact_match) + " of " + plural(scores.n, "held-out sequence") : "";
  const trouble = last.message ? last.message + ". " : "";
  switch (status) {
    case "starting": return "Starting a worker";
    case "training": return trouble + "Training · step " + step + of + (p ? " · " + Math.round(p.steps_per_second) + " steps/s" : "") + where;
    case "paused": return trouble + "Paused at step " + step + of + where + " · the model stays loaded, try it below";
    case "empty": return "No model yet: press Train.";
    case "stopping": return "Stopping and saving";
    case "done": return "Done · " + plural(step, "step") + " in " + duration(p ? p.seconds : 0) + score + where;
    case "stopped": return "Stopped at step " + step + of + " and saved" + soFar + where;
    case "checkpoint": return "Checkpoint " + last.name + " · trained " + plural(step, "step") + score + where;
    case "failed": return "Failed: " + last.message;
    case "gone": return last.message || "This run is no longer on the server. Train a new one, or open a checkpoint above.";
    default: return "Opening";
  }
}

// ---------------------------------------------------------------- drawing
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
function prepare(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  height = height || canvas.clientHeight;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return [c, width, height];
}

// One even ramp from paper to ink, so that a weight reads the same everywhere and without colour vision.
const RAMPS = {
  light: [[255, 255, 255], [214, 230, 244], [150, 197, 226], [74, 146, 199], [24, 90, 160], [8, 42, 92]],
  dark: [[24, 27, 33], [24, 52, 84], [36, 94, 146], [82, 150, 204], [158, 204, 238], [240, 249, 255]],
};
function ramp(thousandths) {
  const stops = document.body.classList.contains("dark") ? RAMPS.dark : RAMPS.light;
  const at = (thousandths / 1000) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(at)), t = at - i;
  return "rgb(" + stops[i].map((a, k) => Math.round(a + (stops[i + 1][k] - a) * t)).join() + ")";
}
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
  const box = $(".heads"), layers = snapshot.attention[kind], rows = stage[KINDS[kind].rows].length, columns = stage[KINDS[kind].columns].length;
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
    head = [layers.length - 1, 0];
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
  const canvas = $(".focus-map"), spec = KINDS[kind], rows = stage[spec.rows], columns = stage[spec.columns];
  const weights = snapshot.attention[kind][head[0]][head[1]], left = 40, top = 22;
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
    const [r, k] = hoverCell, from = spec.from + " " + (r + 1) + " (" + rows[r] + ")", to = spec.to + " " + (k + 1) + " (" + columns[k] + ")";
    caption.textContent = where + (impossible(r, k) ? from + " cannot look at " + to + ": it lies in the future"
      : from + " looks at " + to + " with weight " + (weights[r * columns.length + k] / 1000).toFixed(3));
  } else caption.textContent = where + spec.reading + (document.body.classList.contains("dark") ? " Dark is 0, bright is 1." : " White is 0, dark is 1.");
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
  const step = points.length ? points[points.length - 1].step : 1;
  if (ENDED.includes(status)) return Math.max(step, 1);
  if (last.steps <= 1000) return last.steps;
  let most = 1000;
  while (most < step) most *= String(most)[0] === "2" ? 2.5 : 2;
  return Math.max(step, Math.min(most, last.steps || most));
}

function chart(canvas, series, range, ticks, label) {
  const [c, width, height] = prepare(canvas);
  const left = 44, right = width - 8, top = 8, bottom = height - 20;
  const maxStep = span();
  const x = (step) => left + ((right - left) * step) / maxStep, y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0] || 1);
  c.font = "12px " + css("--font"); c.textBaseline = "middle"; c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = css("--pg-grid"); c.beginPath(); c.moveTo(left, Math.round(y(value)) + 0.5); c.lineTo(right, Math.round(y(value)) + 0.5); c.stroke();
    c.fillStyle = css("--pg-quiet-text"); c.textAlign = "right"; c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic"; c.textAlign = "left"; c.fillText("0", left, height - 4);
  c.textAlign = "right"; c.fillText("step " + Math.round(maxStep).toLocaleString("en"), right, height - 4);
  for (const { values, colour, dots } of series) {
    c.strokeStyle = c.fillStyle = colour; c.lineWidth = 2; c.lineJoin = "round"; c.beginPath();
    decimate(values, x, right - left).forEach(([s, v], i) => (i ? c.lineTo(x(s), y(v)) : c.moveTo(x(s), y(v))));
    c.stroke();
    if (dots && values.length < 60) for (const [s, v] of values) { c.beginPath(); c.arc(x(s), y(v), 2.5, 0, 7); c.fill(); }
  }
  if (hoverStep !== null && points.length) {
    c.strokeStyle = css("--pg-quiet"); c.lineWidth = 1; c.beginPath(); c.moveTo(x(hoverStep), top); c.lineTo(x(hoverStep), bottom); c.stroke();
  }
  canvas.toStep = (px) => Math.round(((px - left) / (right - left)) * maxStep);
  if (!points.length && !ENDED.includes(status)) { c.fillStyle = css("--pg-quiet-text"); c.textAlign = "center"; c.fillText(label, (left + right) / 2, (top + bottom) / 2); }
}

function drawCharts() {
  const log = $(".log").checked, scale = log ? Math.log10 : (v) => v;
  const losses = points.map((p) => [p.step, scale(Math.max(p.loss, 1e-9))]);
  let low = log ? Infinity : 0, high = -Infinity;
  for (const [, v] of losses) { if (v < low) low = v; if (v > high) high = v; }
  if (!losses.length) { low = log ? -2 : 0; high = log ? 0.5 : 3; }
  if (log) low = Math.min(low, high - 1.5);
  const ticks = [];
  if (log) for (let e = Math.floor(low); e <= Math.ceil(high); e++) { if (e >= low && e <= high + 0.1) ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]); }
  else {
    high *= 1.05;
    const rough = high / 4, ten = 10 ** Math.floor(Math.log10(rough)), unit = ten * [1, 2, 5, 10].find((m) => m * ten >= rough);
    for (let v = 0; v <= high; v += unit) ticks.push([v, number(+v.toPrecision(6))]);
  }
  chart($(".loss-chart"), [{ values: losses, colour: css("--pg-accent") }], [low - (log ? 0.1 : 0), high + (log ? 0.1 : 0)], ticks, "the curve appears with the first step");
  const scored = points.filter((p) => p.exact_match !== undefined);
  chart($(".score-chart"), [
    { values: scored.map((p) => [p.step, p.token_accuracy]), colour: css("--pg-quiet") },
    { values: scored.map((p) => [p.step, p.exact_match]), colour: css("--pg-accent"), dots: true },
  ], [0, 1], [[0, "0"], [0.5, "50 %"], [1, "100 %"]], "first score after a few steps");
  const at = hoverStep === null ? points.length - 1 : nearest(points, hoverStep), p = points[at];
  $(".loss-value").textContent = p ? number(p.loss) + (hoverStep === null ? "" : " at step " + p.step) : "";
  const q = hoverStep === null ? scored[scored.length - 1] : scored[nearest(scored, hoverStep)];
  $(".score-value").textContent = q ? percent(q.exact_match) + (hoverStep === null ? "" : " at step " + q.step) : "";
  $(".score-value").title = q ? "of " + plural(q.scored, "held-out sequence") + "; symbols " + percent(q.token_accuracy) : "";
}
function nearest(sorted, step) {
  let best = 0;
  for (let i = 1; i < sorted.length; i++) if (Math.abs(sorted[i].step - step) <= Math.abs(sorted[best].step - step)) best = i;
  return best;
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
      symbol.title = [meaning, answer[i] === undefined ? "one symbol too many" : "should be " + answer[i]].filter(Boolean).join("; ");
    }
    box.append(symbol, " ");
  }
  const verdict = document.createElement("span"), right = given.join() === answer.join();
  verdict.textContent = right ? "✓" : "✗"; verdict.className = right ? "ok" : "wrong"; verdict.style.textDecoration = "none";
  verdict.setAttribute("aria-label", right ? "right" : "wrong");
  box.append(verdict);
}

function drawSamples() {
  const body = $(".samples tbody");
  body.replaceChildren(...snapshot.samples.map(({ source, answer, given }) => {
    const row = document.createElement("tr"), cells = [0, 1, 2].map(() => row.insertCell());
    cells[0].textContent = source.join(" "); cells[1].textContent = "→";
    spell(cells[2], given, answer);
    return row;
  }));
  $(".samples").classList.toggle("long", snapshot.samples.some((s) => s.source.length > 12));
  const right = snapshot.samples.filter((s) => s.given.join() === s.answer.join()).length;
  $(".right-of").textContent = right + " of " + snapshot.samples.length + " right";
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
    if (!root.clientWidth) return;
    drawCharts();
    if (!snapshot || !stage) return;
    $(".probe").textContent = "on " + stage.source.slice(0, -1).join(" ") + " · step " + snapshot.step;
    drawHeads(); drawFocus();
  });
}

function say() {
  root.dataset.status = status;
  $(".sentence").textContent = sentence();
  const page = document.querySelector("#train-page");
  if (!page) return;
  const focused = document.activeElement;
  page.dataset.status = status;
  // The form's buttons are mounted on their own; the page's status in CSS shows the right ones until they are there.
  for (const [id, when] of [["step", ["paused"]], ["stop", ["paused", "training"]]]) {
    const button = page.querySelector("#" + id);
    if (button) button.disabled = !when.includes(status);
  }
  const primary = [...page.querySelectorAll("#train, #pause, #resume")];
  if (primary.includes(focused) && !focused.offsetParent) primary.find((button) => button.offsetParent)?.focus();
}

// ---------------------------------------------------------------- asking the server
const within = (promise, ms) => Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error("timeout")), ms))]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function follow(mine) {
  let wait = 0;
  while (mine === generation && element.isConnected) {
    await sleep(wait);
    try {
      const told = await within(server.poll({ subject, cursor: fresh ? 0 : points.length, looks: fresh ? 0 : looks }), 20000);
      if (mine !== generation) return;
      take(told);
      if (ENDED.includes(status) && !told.more) return;
      wait = told.more ? 0 : document.hidden ? 2000 : status === "paused" ? 500 : 200;
    } catch (error) {
      if (mine !== generation) return;
      $(".sentence").textContent = "No answer from the server; trying again";
      wait = Math.min(5000, Math.max(500, wait * 2));
    }
  }
}

function take(told) {
  const before = fresh ? "" : status;
  if (fresh) begin();
  last = told; status = told.status;
  for (const p of told.points || []) points.push(p);
  if (told.stage) { stage = told.stage; $(".accepts").textContent = "symbols " + stage.accepts; }
  scores = told.scores || null;
  if (told.snapshot) { snapshot = told.snapshot; looks = told.looks; drawSamples(); }
  drawLengths(); say(); draw();
  if (status !== before || (told.snapshot && (status === "paused" || Date.now() - askedAt > 1000))) ask();
}

// The old picture stays until the first answer about the new subject is there.
function begin() {
  fresh = false; points = []; looks = 0; stage = snapshot = scores = null; hoverStep = hoverCell = null;
  $(".answer").replaceChildren(); $(".samples tbody").replaceChildren(); $(".heads").replaceChildren(); delete $(".heads").dataset.signature;
  for (const selector of [".right-of", ".probe", "figcaption"]) $(selector).textContent = "";
  prepare($(".focus-map"));
}

async function ask() {
  const text = $(".sequence").value, note = $(".try-note"), mine = ++asked;
  askedAt = Date.now();
  if (!text.trim()) { $(".answer").replaceChildren(); note.textContent = ""; $(".sequence").removeAttribute("aria-invalid"); return; }
  let reply;
  try { reply = await within(server.ask({ subject, text }), 20000); } catch (error) { reply = { error: "no answer from the server; try again" }; }
  if (mine !== asked) return;
  note.classList.toggle("error", Boolean(reply.error));
  note.textContent = reply.error || reply.note || "";
  if (reply.error) $(".answer").replaceChildren();
  if (reply.error) $(".sequence").setAttribute("aria-invalid", "true");
  else { $(".sequence").removeAttribute("aria-invalid"); spell($(".answer"), reply.given, reply.answer); }
}

function attach() {
  const mine = ++generation;
  asked += 1; subject = props.value || ""; fresh = true;
  if (!subject) { points = points || []; last = last || {}; status = "empty"; say(); return; }
  follow(mine);
  setTimeout(() => { if (mine === generation && fresh) $(".sentence").textContent = "Opening"; }, 400);
}

// ---------------------------------------------------------------- what a person does
let typing;
$(".sequence").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(ask, 150); });
$(".sequence").addEventListener("keydown", (event) => { if (event.key === "Enter") { clearTimeout(typing); ask(); } });
$(".log").addEventListener("change", draw);
$(".kinds").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  kind = button.dataset.kind;
  for (const other of $(".kinds").children) other.setAttribute("aria-pressed", String(other === button));
  hoverCell = null; draw();
});
$(".heads").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) { head = [+button.dataset.layer, +button.dataset.head]; draw(); }
});
for (const canvas of element.querySelectorAll(".chart")) {
  canvas.addEventListener("pointermove", (event) => { if (points.length) { hoverStep = Math.max(0, Math.min(points[points.length - 1].step, canvas.toStep(event.offsetX))); draw(); } });
  canvas.addEventListener("pointerleave", () => { hoverStep = null; draw(); });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !points.length) return;
    event.preventDefault();
    const end = points[points.length - 1].step;
    hoverStep = Math.max(1, Math.min(end, (hoverStep === null ? end : hoverStep) + by * (event.shiftKey ? 10 : 1)));
    draw();
  });
  canvas.addEventListener("blur", () => { hoverStep = null; draw(); });
}
const map = $(".focus-map");
function cellAt(event) {
  if (!stage) return null;
  const columns = stage[KINDS[kind].columns].length, size = Math.min(31, (map.clientWidth - 40) / columns);
  const cell = [Math.floor((event.offsetY - 22) / size), Math.floor((event.offsetX - 40) / size)];
  return cell[0] >= 0 && cell[1] >= 0 && cell[1] < columns && cell[0] < stage[KINDS[kind].rows].length ? cell : null;
}
map.addEventListener("pointermove", (event) => { hoverCell = cellAt(event); draw(); });
map.addEventListener("pointerleave", () => { hoverCell = null; draw(); });
map.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!move || !stage) return;
  event.preventDefault();
  const [r, k] = hoverCell || [0, 0], spec = KINDS[kind];
  hoverCell = hoverCell ? [Math.max(0, Math.min(stage[spec.rows].length - 1, r + move[0])), Math.max(0, Math.min(stage[spec.columns].length - 1, k + move[1]))] : [0, 0];
  draw();
});
map.addEventListener("blur", () => { hoverCell = null; draw(); });
new ResizeObserver(draw).observe(root);
new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });

// Gradio's dropdown leaves its menu open when one tabs out of it.
document.addEventListener("focusout", (event) => {
  if (event.target.closest?.("#subject")) setTimeout(() => event.target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true })), 60);
});

$(".sequence").value = "3 1 4 1 5";
watch("value", attach);
attach();
