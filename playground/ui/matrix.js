// ---------------------------------------------------------------- a matrix with labels, to be looked at cell by cell
const matrices = new WeakMap(); // canvas -> what is drawn on it, and where the pointer or the arrow keys are

// Weights as they travel: thousandths, two bytes each, head after head.
function unpack(data) {
  if (data.all) return data.all;
  const bytes = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0)), view = new DataView(bytes.buffer), numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = view.getInt16(2 * i, true) / 1000;
  const rows = data.rows.length, columns = data.columns.length;
  const row = (l, h, r) => { const at = ((l * data.heads + h) * rows + r) * columns; return numbers.subarray(at, at + columns); };
  data.all = Array.from({ length: data.layers }, (_, l) => Array.from({ length: data.heads }, (_, h) => Array.from({ length: rows }, (_, r) => row(l, h, r))));
  return data.all;
}

// Red, green and blue of a value: from paper to ink; signed values from one hue through paper to the other.
function shading(most, signed) {
  const table = rampTable(), dark = document.body.classList.contains("dark");
  if (!signed) return (value) => table[Math.max(0, Math.min(1000, Math.round((1000 * value) / (most || 1))))];
  const paper = dark ? [24, 27, 33] : [255, 255, 255], ends = dark ? [[255, 160, 87], [82, 150, 204]] : [[178, 82, 0], [24, 90, 160]];
  return (value) => {
    const share = Math.max(-1, Math.min(1, value / (most || 1))), end = ends[share < 0 ? 0 : 1];
    return paper.map((a, k) => Math.round(a + (end[k] - a) * Math.abs(share)));
  };
}
const shade = (value, most, signed) => "rgb(" + shading(most, signed)(value).join() + ")";

// One pixel a cell, then blown up: a million cells cost a thousandth of a million rectangles.
const pixels = document.createElement("canvas");
function cells(c, m, x, y, cw, ch) {
  const rows = m.weights.length, columns = m.weights[0].length;
  const most = m.most || (m.signed ? m.weights.reduce((high, row) => row.reduce((a, v) => Math.max(a, Math.abs(v ?? 0)), high), 1e-9) : 1), colour = shading(most, m.signed);
  pixels.width = columns; pixels.height = rows;
  const p = pixels.getContext("2d"), image = p.createImageData(columns, rows);
  for (let r = 0; r < rows; r++) for (let k = 0; k < columns; k++) {
    if (m.possible && !m.possible[r][k]) continue;
    const at = 4 * (r * columns + k), rgb = colour(m.weights[r][k] ?? 0);
    image.data[at] = rgb[0]; image.data[at + 1] = rgb[1]; image.data[at + 2] = rgb[2]; image.data[at + 3] = 255;
  }
  p.putImageData(image, 0, 0);
  c.imageSmoothingEnabled = false;
  c.drawImage(pixels, x, y, columns * cw, rows * ch);
  if (!m.possible) return;
  // What cannot be looked at is hatched, which is not the same as a weight of zero.
  c.save(); c.beginPath();
  m.possible.forEach((row, r) => row.forEach((can, k) => { if (!can) c.rect(x + k * cw, y + r * ch, cw, ch); }));
  c.clip(); c.strokeStyle = css("--pg-hatch"); c.lineWidth = 1; c.beginPath();
  const w = m.weights[0].length * cw, h = m.weights.length * ch;
  for (let d = -h; d < w; d += 6) { c.moveTo(x + d, y + h); c.lineTo(x + d + h, y); }
  c.stroke(); c.restore();
}

// A small picture without labels.
function thumbnail(canvas, m) {
  const rows = m.weights.length, columns = m.weights[0].length, width = canvas.clientWidth;
  if (!width) return;
  const [c, w, h] = prepare(canvas, Math.max(12, Math.min(width, Math.round((width * rows) / columns))));
  cells(c, m, 0, 0, w / columns, h / rows);
}

// A large one with tokens on both axes. `hover(row, column)` says in words what a cell is; `choose` is called on a click or Enter.
function matrix(canvas, m, { hover = () => "", choose = null, caption = null } = {}) {
  const known = matrices.get(canvas), it = known || { at: null };
  Object.assign(it, { m, hover, choose, caption, resting: caption ? caption.dataset.resting || "" : "" });
  if (!known) {
    matrices.set(canvas, it);
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    const move = (at) => { it.at = at; paintMatrix(canvas, it); };
    canvas.addEventListener("pointermove", (event) => move(cellUnder(canvas, it, event)));
    canvas.addEventListener("pointerleave", () => move(null));
    canvas.addEventListener("blur", () => move(null));
    canvas.addEventListener("click", (event) => { const at = cellUnder(canvas, it, event); if (at && it.choose) it.choose(...at); });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Enter" && it.at && it.choose) it.choose(...it.at);
      if (!step) return;
      event.preventDefault(); event.stopPropagation();
      const rows = it.m.weights.length, columns = it.m.weights[0].length;
      move(it.at ? [Math.max(0, Math.min(rows - 1, it.at[0] + step[0])), Math.max(0, Math.min(columns - 1, it.at[1] + step[1]))] : [0, 0]);
    });
  }
  paintMatrix(canvas, it);
}
function placing(canvas, { m }) {
  const longest = (names) => Math.max(1, ...names.map((name) => String(name).length));
  const left = Math.max(28, 9 + 8 * longest(m.rows)), tall = longest(m.columns) > 4, top = tall ? 12 + 7 * Math.min(10, longest(m.columns)) : 22;
  const room = (canvas.clientWidth - left - 2) / m.columns.length;
  return { left, top, tall, cw: Math.min(m.size || 44, room), ch: Math.min(m.size || 44, Math.max(room, m.rows.length > 30 ? 6 : 12)) };
}
function cellUnder(canvas, it, event) {
  const { left, top, cw, ch } = placing(canvas, it);
  const at = [Math.floor((event.offsetY - top) / ch), Math.floor((event.offsetX - left) / cw)];
  return at[0] >= 0 && at[1] >= 0 && at[0] < it.m.rows.length && at[1] < it.m.columns.length ? at : null;
}
function paintMatrix(canvas, it) {
  if (!canvas.clientWidth) return;
  const { m } = it, { left, top, tall, cw, ch } = placing(canvas, it), rows = m.rows.length, columns = m.columns.length;
  const [c] = prepare(canvas, Math.round(top + ch * rows + 2));
  c.font = (Math.min(cw, ch) < 13 ? 9 : 12) + "px " + css("--font-mono"); c.textBaseline = "middle"; c.fillStyle = css("--body-text-color");
  const every = (size, least) => Math.max(1, Math.ceil(least / size));
  m.columns.forEach((name, k) => {
    if (k % every(cw, tall ? 11 : 10)) return;
    const x = left + (k + 0.5) * cw;
    if (!tall) { c.textAlign = "center"; c.fillText(name, x, top / 2); return; }
    c.save(); c.translate(x, top - 6); c.rotate(-Math.PI / 2); c.textAlign = "left"; c.fillText(String(name).slice(0, 10), 0, 0); c.restore();
  });
  c.textAlign = "right";
  m.rows.forEach((name, r) => { if (r % every(ch, 10) === 0) c.fillText(name, left - 8, top + (r + 0.5) * ch); });
  cells(c, m, left, top, cw, ch);
  c.strokeStyle = css("--border-color-primary"); c.lineWidth = 1; c.strokeRect(left - 0.5, top - 0.5, cw * columns + 1, ch * rows + 1);
  const at = it.at && it.at[0] < rows && it.at[1] < columns ? it.at : null;
  for (const [mark, colour] of [[m.chosen, "--pg-accent"], [at, "--pg-mark"]]) if (mark) { c.strokeStyle = css(colour); c.lineWidth = 2; c.strokeRect(left + mark[1] * cw, top + mark[0] * ch, cw, ch); }
  const words = at ? (m.possible && !m.possible[at[0]][at[1]] ? m.rows[at[0]] + " cannot look at " + m.columns[at[1]] + " here: it lies in the future, or is padding." : it.hover(...at)) : it.resting;
  if (it.caption) it.caption.textContent = words;
  canvas.setAttribute("aria-label", words || "A heatmap: rows " + m.rows.slice(0, 12).join(" ") + ", columns " + m.columns.slice(0, 12).join(" "));
}
