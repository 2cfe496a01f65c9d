// The diagram of the model.
// Tokens, blocks with their heads, and links as thick as the attention weights of the selected
// head, all on the probe sequence. It is drawn again only if something that it shows has changed.
import { setUpCanvas } from "../shared/canvas.js";
import { colorTable, cssVariable } from "../shared/palette.js";
import { setMessage } from "../shared/common.js";
import { formatCount } from "../shared/format.js";
import { selectKind } from "./input.js";
import { scheduleRender } from "./rendering.js";
import { embeddedView } from "./share_dialog.js";
import { state } from "./state.js";
import { $ } from "./view.js";

const DIAGRAM_COLORS = {
  encoder: ["#00795a", "#2fd6a5"],
  decoder: ["#5b3fc4", "#b7a4ff"],
  cross: ["#c26a00", "#ffb000"],
};
const KIND_TITLES = {
  encoder: "self-attention",
  decoder: "masked self-attention",
  cross: "cross-attention",
};
const MIN_BLOCKS_WIDTH = 620; // narrower diagrams show only tokens and links
const MAX_HEAD_SIZE = 52;
let diagramSignature = "",
  diagramHeads = []; // {kind, layer, head, x, y, size}: the heads that are drawn, for clicks
const diagramColor = (kind) =>
  DIAGRAM_COLORS[kind][document.body.classList.contains("dark") ? 1 : 0];

export function renderDiagram() {
  const figure = $(".diagram"),
    canvas = $(".diagram-canvas");
  figure.hidden = !!embeddedView;
  if (figure.hidden) return;
  const signature = [
    state.selectedKind,
    state.selectedHead,
    canvas.clientWidth,
    devicePixelRatio,
    document.body.className,
  ].join();
  if (canvas.drawnSnapshot === state.displayedSnapshot && signature === diagramSignature) return;
  canvas.drawnSnapshot = state.displayedSnapshot;
  diagramSignature = signature;
  paintDiagram(canvas);
}

function paintDiagram(canvas) {
  const [rows, columns] = state.probeInfo.axes[state.selectedKind],
    output = state.displayedSnapshot.probe,
    kinds = Object.keys(state.displayedSnapshot.attention),
    longest = Math.max(rows.length, columns.length, output ? output.target.length : 0);
  const rowHeight = longest > 24 ? 9 : longest > 14 ? 14 : 20,
    top = 22,
    height = top + Math.max(longest * rowHeight, 190) + 6;
  const [c, width] = setUpCanvas(canvas, height);
  if (!width) return;
  const hasBlocks = width >= MIN_BLOCKS_WIDTH,
    left = kinds.filter((kind) => hasBlocks && kind === "encoder"),
    right = kinds.filter((kind) => hasBlocks && kind !== "encoder"),
    blockWidth = Math.min(230, width * 0.25),
    keysX = left.length ? blockWidth + 58 : 40,
    outputX = width - (right.length ? blockWidth + 34 : 8) - 96,
    queriesX = outputX - 28;
  c.textBaseline = "middle";
  c.lineJoin = "round";
  diagramHeads = [];
  paintStack(c, left, 0, top, blockWidth, height - top - 6);
  paintStack(c, right, width - blockWidth, top, blockWidth, height - top - 6);
  const offset = (names) => top + (height - top - 6 - names.length * rowHeight) / 2;
  const keysY = offset(columns),
    queriesY = offset(rows);
  const y = (start, i) => start + (i + 0.5) * rowHeight;
  const layers = state.displayedSnapshot.attention[state.selectedKind],
    weights = layers[state.selectedHead[0]]?.[state.selectedHead[1]];
  if (weights) {
    c.strokeStyle = diagramColor(state.selectedKind);
    c.lineCap = "round";
    rows.forEach((_, r) =>
      columns.forEach((_, k) => {
        const weight = weights[r * columns.length + k] / 1000;
        if (weight < 0.02) return;
        c.globalAlpha = 0.12 + 0.88 * weight;
        c.lineWidth = 0.5 + weight * Math.min(7, rowHeight * 0.4);
        c.beginPath();
        const from = keysX + 18,
          to = queriesX - 18,
          middle = (from + to) / 2;
        c.moveTo(from, y(keysY, k));
        c.bezierCurveTo(middle, y(keysY, k), middle, y(queriesY, r), to, y(queriesY, r));
        c.stroke();
      }),
    );
    c.globalAlpha = 1;
  }
  paintTokens(c, columns, keysX, keysY, rowHeight);
  paintTokens(c, rows, queriesX, queriesY, rowHeight);
  if (output) paintOutput(c, output, outputX, offset(output.target), rowHeight);
  paintLabel(c, state.selectedKind === "cross" ? "source" : "keys", keysX, "center");
  paintLabel(c, state.selectedKind === "cross" ? "target" : "queries", queriesX, "center");
  if (output) paintLabel(c, "prediction", outputX, "left");
  canvas.setAttribute("aria-label", describeDiagram(kinds));
  setMessage($(".diagram-note"), describeSelection(layers));
}

function paintLabel(c, text, x, align) {
  c.font = "12px " + cssVariable("--font");
  c.textAlign = align;
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.fillText(text, x, 9);
}

function paintTokens(c, names, x, start, rowHeight) {
  c.font = (rowHeight < 12 ? 8 : 13) + "px " + cssVariable("--font-mono");
  c.textAlign = "center";
  c.fillStyle = cssVariable("--body-text-color");
  names.forEach((name, i) => c.fillText(name, x, start + (i + 0.5) * rowHeight));
}

// Each predicted token with a bar of its probability; wrong tokens are red and underlined.
function paintOutput(c, { target, predicted, probability }, x, start, rowHeight) {
  c.font = (rowHeight < 12 ? 8 : 13) + "px " + cssVariable("--font-mono");
  c.textAlign = "left";
  target.forEach((token, i) => {
    const isRight = token === predicted[i],
      middle = start + (i + 0.5) * rowHeight,
      color = cssVariable(isRight ? "--pg-good" : "--pg-bad");
    c.fillStyle = cssVariable("--border-color-primary");
    c.fillRect(x + 34, middle - 3, 58, 6);
    c.fillStyle = color;
    c.fillRect(x + 34, middle - 3, (58 * probability[i]) / 1000, 6);
    c.fillText(predicted[i], x, middle);
    if (!isRight) c.fillRect(x, middle + 7, c.measureText(predicted[i]).width, 1.5);
  });
}

// A stack of blocks: layer 1 at the bottom, each with the heads of its kinds of attention.
function paintStack(c, kinds, x, top, width, height) {
  if (!kinds.length) return;
  const layers = Math.max(...kinds.map((kind) => state.displayedSnapshot.attention[kind].length)),
    gap = 8,
    blockHeight = Math.min(150, (height - gap * (layers - 1)) / layers),
    title = kinds[0] === "encoder" ? "Encoder" : "Decoder";
  paintLabel(c, title + (layers > 1 ? ", " + layers + " layers" : ", 1 layer"), x, "left");
  for (let layer = 0; layer < layers; layer++) {
    const y = top + height - (layer + 1) * blockHeight - layer * gap;
    c.fillStyle = cssVariable("--background-fill-secondary");
    c.strokeStyle = cssVariable("--border-color-primary");
    c.lineWidth = 1;
    c.beginPath();
    c.roundRect(x + 0.5, y + 0.5, width - 1, blockHeight - 1, 6);
    c.fill();
    c.stroke();
    if (layers > 1 && blockHeight > 24) {
      c.font = "11px " + cssVariable("--font");
      c.textAlign = "right";
      c.fillStyle = cssVariable("--pg-quiet-text");
      c.fillText("layer " + (layer + 1), x + width - 8, y + 12);
    }
    kinds.forEach((kind, i) => {
      const heads = state.displayedSnapshot.attention[kind][layer] || [],
        bandHeight = (blockHeight - 8) / kinds.length;
      paintHeads(c, kind, layer, heads, x + 8, y + 4 + i * bandHeight, width - 16, bandHeight);
    });
  }
}

function paintHeads(c, kind, layer, heads, x, y, width, height) {
  const [rows, columns] = state.probeInfo.axes[kind].map((names) => names.length),
    hasTitle = height >= 34;
  if (hasTitle) {
    c.font = "11px " + cssVariable("--font");
    c.textAlign = "left";
    c.fillStyle = diagramColor(kind);
    c.fillText(KIND_TITLES[kind], x, y + 8);
  }
  const titleHeight = hasTitle ? 16 : 2,
    size = Math.floor(Math.min(MAX_HEAD_SIZE, height - titleHeight - 4, width / heads.length - 4));
  if (size < 4) return;
  heads.forEach((weights, head) => {
    const at = { kind, layer, head, x: x + head * (size + 4), y: y + titleHeight, size };
    diagramHeads.push(at);
    c.imageSmoothingEnabled = false;
    c.drawImage(heatmapImage(weights, rows, columns, kind === "decoder"), at.x, at.y, size, size);
    const isSelected =
      kind === state.selectedKind &&
      layer === state.selectedHead[0] &&
      head === state.selectedHead[1];
    c.strokeStyle = isSelected ? diagramColor(kind) : cssVariable("--border-color-primary");
    c.lineWidth = isSelected ? 2.5 : 1;
    c.strokeRect(at.x - 0.5, at.y - 0.5, size + 1, size + 1);
  });
}

// One pixel for each weight; the browser scales the image.
const heatmapCanvas = document.createElement("canvas");
function heatmapImage(weights, rows, columns, isCausal) {
  heatmapCanvas.width = columns;
  heatmapCanvas.height = rows;
  const c = heatmapCanvas.getContext("2d"),
    image = c.createImageData(columns, rows),
    table = colorTable();
  weights.forEach((weight, i) => {
    if (isCausal && i % columns > Math.floor(i / columns)) return;
    const [red, green, blue] = table[Math.max(0, Math.min(1000, weight))];
    image.data.set([red, green, blue, 255], 4 * i);
  });
  c.putImageData(image, 0, 0);
  return heatmapCanvas;
}

function describeSelection(layers) {
  const where =
    "layer " +
    (state.selectedHead[0] + 1) +
    (layers[0].length > 1 ? ", head " + (state.selectedHead[1] + 1) : "");
  const side =
    state.selectedKind === "encoder"
      ? "Encoder"
      : state.selectedKind === "decoder"
        ? "Decoder"
        : "";
  return (
    (side ? side + " " + KIND_TITLES[state.selectedKind] : "Cross-attention") +
    ", " +
    where +
    ". The thicker a link, the larger the attention weight."
  );
}

function describeDiagram(kinds) {
  const counts = kinds.map((kind) => {
    const layers = state.displayedSnapshot.attention[kind];
    return formatCount(layers.length * layers[0].length, "head") + " of " + KIND_TITLES[kind];
  });
  const output = state.displayedSnapshot.probe;
  const right = output
    ? output.target.filter((token, i) => token === output.predicted[i]).length
    : 0;
  return (
    "Diagram of the model: " +
    counts.join(", ") +
    (output ? ". " + right + " of " + output.target.length + " predicted tokens are right" : "") +
    ". The buttons under Attention select a head."
  );
}

function headAt(event) {
  return diagramHeads.find(
    ({ x, y, size }) =>
      event.offsetX >= x &&
      event.offsetX <= x + size &&
      event.offsetY >= y &&
      event.offsetY <= y + size,
  );
}

export function initModelDiagram() {
  $(".diagram-canvas").addEventListener("click", (event) => {
    const at = headAt(event);
    if (!at) return;
    selectKind(at.kind);
    state.selectedHead = [at.layer, at.head];
    scheduleRender();
  });
  $(".diagram-canvas").addEventListener("pointermove", (event) => {
    event.currentTarget.style.cursor = headAt(event) ? "pointer" : "";
  });
}
