import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable, scaleColor } from "../shared/palette.js";
import { displayedPass } from "./diagram/diagram.js";
import { state } from "./state.js";
import { attentionKind } from "./status.js";
import { $ } from "./view.js";

const isMasked = (row, column) => state.selectedKind === "decoder" && column > row;

function paintHeatmap(context, weights, nRows, nColumns, x, y, cellSize) {
  for (let row = 0; row < nRows; row++)
    for (let column = 0; column < nColumns; column++) {
      if (isMasked(row, column)) continue;
      context.fillStyle = scaleColor(weights[row * nColumns + column]);
      context.fillRect(
        x + column * cellSize,
        y + row * cellSize,
        Math.ceil(cellSize),
        Math.ceil(cellSize),
      );
    }
  if (state.selectedKind === "decoder") {
    // Hatching distinguishes masked positions from weights of zero.
    context.save();
    context.beginPath();
    for (let row = 0; row < nRows; row++)
      context.rect(
        x + (row + 1) * cellSize,
        y + row * cellSize,
        (nColumns - row - 1) * cellSize,
        cellSize,
      );
    context.clip();
    context.strokeStyle = cssVariable("--pg-hatch");
    context.lineWidth = 1;
    context.beginPath();
    const height = nRows * cellSize;
    for (let offset = -height; offset < nColumns * cellSize; offset += 6) {
      context.moveTo(x + offset, y + height);
      context.lineTo(x + offset + height, y);
    }
    context.stroke();
    context.restore();
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
  const [context] = setUpCanvas(canvas, Math.round(top + size * rows.length + 2));
  context.font = (size < 16 ? 9 : 12) + "px " + cssVariable("--font-mono");
  context.textBaseline = "middle";
  context.fillStyle = cssVariable("--body-text-color");
  context.textAlign = "center";
  columns.forEach((token, i) => context.fillText(token, left + (i + 0.5) * size, top / 2));
  context.textAlign = "right";
  rows.forEach((token, i) => context.fillText(token, left - 8, top + (i + 0.5) * size));
  paintHeatmap(context, weights, rows.length, columns.length, left, top, size);
  context.strokeStyle = cssVariable("--border-color-primary");
  context.strokeRect(left - 0.5, top - 0.5, size * columns.length + 1, size * rows.length + 1);
  const hoverCell = state.hoverCell ?? [Infinity, Infinity],
    isHovered = hoverCell[0] < rows.length && hoverCell[1] < columns.length;
  if (isHovered) {
    context.strokeStyle = cssVariable("--pg-mark");
    context.lineWidth = 2;
    context.strokeRect(left + hoverCell[1] * size, top + hoverCell[0] * size, size, size);
  }
  const caption = $(".focus figcaption"),
    headLabel =
      "Layer " + (state.selectedHead[0] + 1) + ", head " + (state.selectedHead[1] + 1) + ". ";
  if (isHovered) {
    const [row, column] = hoverCell,
      query = attentionKind().from + " " + (row + 1) + " (" + rows[row] + ")",
      key = attentionKind().to + " " + (column + 1) + " (" + columns[column] + ")";
    caption.textContent =
      headLabel +
      (isMasked(row, column)
        ? query + " cannot attend to " + key + ": it is a later position"
        : query +
          " attends to " +
          key +
          " with weight " +
          (weights[row * columns.length + column] / 1000).toFixed(3));
  } else
    caption.textContent =
      headLabel +
      attentionKind().reading +
      (document.body.classList.contains("dark")
        ? " Dark is 0, bright is 1."
        : " Stronger colours: higher weights, from 0 to 1.");
}
