// A labeled matrix with cell selection.
import { colorTable, cssVariable, setUpCanvas } from "./canvas.js";

export const matrixStates = new WeakMap(); // canvas -> its matrix, and the selected cell

// Decode weights: thousandths in two bytes each, head after head.
export function unpackWeights(data) {
  if (data.all) return data.all;
  const bytes = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0)),
    view = new DataView(bytes.buffer),
    numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = view.getInt16(2 * i, true) / 1000;
  const rows = data.rows.length,
    columns = data.columns.length;
  const row = (l, h, r) => {
    const at = ((l * data.heads + h) * rows + r) * columns;
    return numbers.subarray(at, at + columns);
  };
  data.all = Array.from({ length: data.layers }, (_, l) =>
    Array.from({ length: data.heads }, (_, h) =>
      Array.from({ length: rows }, (_, r) => row(l, h, r)),
    ),
  );
  return data.all;
}

// Return red, green and blue of a value. Signed values use a diverging scale.
export function colorScale(maxValue, signed) {
  const table = colorTable(),
    dark = document.body.classList.contains("dark");
  if (!signed)
    return (value) =>
      table[Math.max(0, Math.min(1000, Math.round((1000 * value) / (maxValue || 1))))];
  const paper = dark ? [24, 27, 33] : [255, 255, 255],
    ends = dark
      ? [
          [255, 160, 87],
          [82, 150, 204],
        ]
      : [
          [178, 82, 0],
          [24, 90, 160],
        ];
  return (value) => {
    const share = Math.max(-1, Math.min(1, value / (maxValue || 1))),
      end = ends[share < 0 ? 0 : 1];
    return paper.map((a, k) => Math.round(a + (end[k] - a) * Math.abs(share)));
  };
}
export const colorFor = (value, maxValue, signed) =>
  "rgb(" + colorScale(maxValue, signed)(value).join() + ")";

// Draw one pixel per cell and scale it: much faster than a rectangle per cell.
export const scratchCanvas = document.createElement("canvas");
export function paintCells(c, m, x, y, cw, ch) {
  const rows = m.weights.length,
    columns = m.weights[0].length;
  const maxValue =
      m.max ||
      (m.signed
        ? m.weights.reduce(
            (high, row) => row.reduce((a, v) => Math.max(a, Math.abs(v ?? 0)), high),
            1e-9,
          )
        : 1),
    color = colorScale(maxValue, m.signed);
  scratchCanvas.width = columns;
  scratchCanvas.height = rows;
  const p = scratchCanvas.getContext("2d"),
    image = p.createImageData(columns, rows);
  for (let r = 0; r < rows; r++)
    for (let k = 0; k < columns; k++) {
      if (m.possible && !m.possible[r][k]) continue;
      const at = 4 * (r * columns + k),
        rgb = color(m.weights[r][k] ?? 0);
      image.data[at] = rgb[0];
      image.data[at + 1] = rgb[1];
      image.data[at + 2] = rgb[2];
      image.data[at + 3] = 255;
    }
  p.putImageData(image, 0, 0);
  c.imageSmoothingEnabled = false;
  c.drawImage(scratchCanvas, x, y, columns * cw, rows * ch);
  if (!m.possible) return;
  // Masked positions are hatched, to distinguish them from a weight of zero.
  c.save();
  c.beginPath();
  m.possible.forEach((row, r) =>
    row.forEach((can, k) => {
      if (!can) c.rect(x + k * cw, y + r * ch, cw, ch);
    }),
  );
  c.clip();
  c.strokeStyle = cssVariable("--pg-hatch");
  c.lineWidth = 1;
  c.beginPath();
  const w = m.weights[0].length * cw,
    h = m.weights.length * ch;
  for (let d = -h; d < w; d += 6) {
    c.moveTo(x + d, y + h);
    c.lineTo(x + d + h, y);
  }
  c.stroke();
  c.restore();
}

// Draw a thumbnail without labels.
export function paintThumbnail(canvas, m) {
  const rows = m.weights.length,
    columns = m.weights[0].length,
    width = canvas.clientWidth;
  if (!width) return;
  const [c, w, h] = setUpCanvas(
    canvas,
    Math.max(12, Math.min(width, Math.round((width * rows) / columns))),
  );
  paintCells(c, m, 0, 0, w / columns, h / rows);
}

// A large matrix with tokens on both axes. `hover(row, column)` returns the description of a cell;
// `choose` is called on a click or Enter.
export function mountMatrix(
  canvas,
  m,
  { hover: describe = () => "", choose: onChoose = null, caption = null } = {},
) {
  const existing = matrixStates.get(canvas),
    state = existing || { at: null };
  Object.assign(state, {
    m,
    hover: describe,
    choose: onChoose,
    caption,
    resting: caption ? caption.dataset.resting || "" : "",
  });
  if (!existing) {
    matrixStates.set(canvas, state);
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    const move = (at) => {
      state.at = at;
      paintMatrix(canvas, state);
    };
    canvas.addEventListener("pointermove", (event) => move(hitTest(canvas, state, event)));
    canvas.addEventListener("pointerleave", () => move(null));
    canvas.addEventListener("blur", () => move(null));
    canvas.addEventListener("click", (event) => {
      const at = hitTest(canvas, state, event);
      if (at && state.choose) state.choose(...at);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
        event.key
      ];
      if (event.key === "Enter" && state.at && state.choose) state.choose(...state.at);
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const rows = state.m.weights.length,
        columns = state.m.weights[0].length;
      move(
        state.at
          ? [
              Math.max(0, Math.min(rows - 1, state.at[0] + step[0])),
              Math.max(0, Math.min(columns - 1, state.at[1] + step[1])),
            ]
          : [0, 0],
      );
    });
  }
  paintMatrix(canvas, state);
}
export function matrixLayout(canvas, { m }) {
  const maxLength = (names) => Math.max(1, ...names.map((name) => String(name).length));
  const left = Math.max(28, 9 + 8 * maxLength(m.rows)),
    tall = maxLength(m.columns) > 4,
    top = tall ? 12 + 7 * Math.min(10, maxLength(m.columns)) : 22;
  const availableWidth = (canvas.clientWidth - left - 2) / m.columns.length;
  return {
    left,
    top,
    tall,
    cw: Math.min(m.size || 44, availableWidth),
    ch: Math.min(m.size || 44, Math.max(availableWidth, m.rows.length > 30 ? 6 : 12)),
  };
}
export function hitTest(canvas, state, event) {
  const { left, top, cw, ch } = matrixLayout(canvas, state);
  const at = [Math.floor((event.offsetY - top) / ch), Math.floor((event.offsetX - left) / cw)];
  return at[0] >= 0 && at[1] >= 0 && at[0] < state.m.rows.length && at[1] < state.m.columns.length
    ? at
    : null;
}
export function paintMatrix(canvas, state) {
  if (!canvas.clientWidth) return;
  const { m } = state,
    { left, top, tall, cw, ch } = matrixLayout(canvas, state),
    rows = m.rows.length,
    columns = m.columns.length;
  const [c] = setUpCanvas(canvas, Math.round(top + ch * rows + 2));
  c.font = (Math.min(cw, ch) < 13 ? 9 : 12) + "px " + cssVariable("--font-mono");
  c.textBaseline = "middle";
  c.fillStyle = cssVariable("--body-text-color");
  const every = (size, minValue) => Math.max(1, Math.ceil(minValue / size));
  m.columns.forEach((name, k) => {
    if (k % every(cw, tall ? 11 : 10)) return;
    const x = left + (k + 0.5) * cw;
    if (!tall) {
      c.textAlign = "center";
      c.fillText(name, x, top / 2);
      return;
    }
    c.save();
    c.translate(x, top - 6);
    c.rotate(-Math.PI / 2);
    c.textAlign = "left";
    c.fillText(String(name).slice(0, 10), 0, 0);
    c.restore();
  });
  c.textAlign = "right";
  m.rows.forEach((name, r) => {
    if (r % every(ch, 10) === 0) c.fillText(name, left - 8, top + (r + 0.5) * ch);
  });
  paintCells(c, m, left, top, cw, ch);
  c.strokeStyle = cssVariable("--border-color-primary");
  c.lineWidth = 1;
  c.strokeRect(left - 0.5, top - 0.5, cw * columns + 1, ch * rows + 1);
  const at = state.at && state.at[0] < rows && state.at[1] < columns ? state.at : null;
  for (const [mark, color] of [
    [m.chosen, "--pg-accent"],
    [at, "--pg-mark"],
  ])
    if (mark) {
      c.strokeStyle = cssVariable(color);
      c.lineWidth = 2;
      c.strokeRect(left + mark[1] * cw, top + mark[0] * ch, cw, ch);
    }
  const words = at
    ? m.possible && !m.possible[at[0]][at[1]]
      ? m.rows[at[0]] +
        " cannot attend to " +
        m.columns[at[1]] +
        " here: it is a later position, or padding."
      : state.hover(...at)
    : state.resting;
  if (state.caption) state.caption.textContent = words;
  canvas.setAttribute(
    "aria-label",
    words ||
      "A heatmap: rows " +
        m.rows.slice(0, 12).join(" ") +
        ", columns " +
        m.columns.slice(0, 12).join(" "),
  );
}
