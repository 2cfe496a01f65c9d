import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable, scaleColor } from "../shared/palette.js";
import { displayedPass } from "./diagram/diagram.js";
import { state } from "./state.js";
import { attentionKind } from "./status.js";
import { $ } from "./view.js";

const isMasked = (row, column) => state.selectedKind === "decoder" && column > row;

function paintHeatmap(c, weights, rows, columns, x, y, cw, ch) {
  for (let r = 0; r < rows; r++)
    for (let k = 0; k < columns; k++) {
      if (isMasked(r, k)) continue;
      c.fillStyle = scaleColor(weights[r * columns + k]);
      c.fillRect(x + k * cw, y + r * ch, Math.ceil(cw), Math.ceil(ch));
    }
  if (state.selectedKind === "decoder") {
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

export function paintSelectedHead() {
  const canvas = $(".focus-map"),
    pass = displayedPass(),
    [rows, columns] = pass.axes[state.selectedKind];
  const weights = pass.attention[state.selectedKind][state.selectedHead[0]][state.selectedHead[1]],
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
  if (state.hoverCell && state.hoverCell[0] < rows.length && state.hoverCell[1] < columns.length) {
    c.strokeStyle = cssVariable("--pg-mark");
    c.lineWidth = 2;
    c.strokeRect(left + state.hoverCell[1] * size, top + state.hoverCell[0] * size, size, size);
  }
  const caption = $(".focus figcaption"),
    where = "Layer " + (state.selectedHead[0] + 1) + ", head " + (state.selectedHead[1] + 1) + ". ";
  if (state.hoverCell && state.hoverCell[0] < rows.length && state.hoverCell[1] < columns.length) {
    const [r, k] = state.hoverCell,
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
