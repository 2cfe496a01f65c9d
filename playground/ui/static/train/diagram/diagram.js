// The diagram of the model: its stacks with their heads, and between them the tokens with a link
// for each attention weight of the selected head. Every number is measured, on the probe
// sequence or on the typed one. Elements are built once for an architecture.
import { navigate } from "../../shared/common.js";
import { el, setText } from "../../shared/dom.js";
import { formatCount } from "../../shared/format.js";
import { cssVariable } from "../../shared/palette.js";
import { store } from "../../shared/store.js";

import { scheduleRender } from "../rendering.js";
import { linkedHead } from "../share_links.js";
import { selectKind, state } from "../state.js";
import { $ } from "../view.js";
import { paintLinks } from "./links.js";
import { refreshScores } from "./scores.js";
import { moveFocus } from "./move_focus.js";
import { createLegend, createStacks, updateStacks } from "./stacks.js";
import {
  buildStacks,
  describeHead,
  describeWeights,
  firstPredictedRow,
  formatThousandths,
  KIND_TITLES,
  summarizeHead,
} from "./structure.js";

const BLOCK_TEXTS = {
  encoder:
    "Each source token collects information from all source tokens. In each head, the attention " +
    "weights say how much of every token's value it takes.",
  decoder:
    "Each target token collects information from itself and the tokens before it. Later tokens " +
    "are masked.",
  cross:
    "Each target token reads from the source: the queries come from the decoder, the keys and " +
    "values from the memory, which is the encoder's output.",
  "feed-forward":
    "Two linear layers with an activation between them transform each position alone.",
  recurrent: "The cell updates its state from one token to the next.",
};
/** @type {ReturnType<typeof createStacks>} */
let elements = { boxes: [], heads: [], blocks: [] };
let signature = "";

/** The forward pass that the page shows: of the typed sequence, or of the probe. */
export function displayedPass() {
  if (state.typedPass) return { step: state.displayedSnapshot.step, ...state.typedPass };
  return { axes: state.probeInfo.axes, source: state.probeInfo.source, ...state.displayedSnapshot };
}

const colorOf = (kind) => cssVariable("--pg-" + kind);

/** Build the stacks if the architecture differs from the displayed one. */
function buildElements() {
  const { attention } = state.displayedSnapshot,
    shape = Object.entries(attention).map(([kind, layers]) => [kind, layers.map((l) => l.length)]),
    next = JSON.stringify([state.modelRef, state.probeInfo.architecture, shape]);
  if (next === signature) return;
  signature = next;
  const stacks = buildStacks(state.probeInfo, attention);
  elements = createStacks(stacks);
  const grid = $(".diagram-grid"),
    links = $(".diagram-links");
  const first = el("div", {}, elements.boxes[0], createLegend());
  grid.replaceChildren(first, links, ...elements.boxes.slice(1));
  grid.dataset.stacks = String(stacks.length);
  const layers = attention[state.selectedKind];
  state.selectedBlock = "";
  if (layers) state.selectedHead = linkedHead(layers) || [layers.length - 1, 0];
}

export function renderDiagram() {
  buildElements();
  const pass = displayedPass(),
    kind = state.selectedKind,
    [layer, head] = state.selectedHead;
  updateStacks(elements, pass, { kind, layer, head, block: state.selectedBlock });
  const [queries, keys] = pass.axes[kind] || [pass.probe?.target ?? [], pass.source],
    outputRow = firstPredictedRow(kind, queries.length, pass);
  paintLinks($(".diagram-canvas"), {
    keys,
    queries,
    weights: pass.attention[kind]?.[layer]?.[head] || null,
    output: outputRow === null ? null : pass.probe,
    outputRow: outputRow ?? 0,
    titles: columnTitles(pass, kind),
    color: colorOf(kind),
    memoryColor: colorOf("cross"),
    highlight: state.hoverRow ?? state.hoverCell?.[0] ?? null,
    hasMemory: Boolean(pass.axes.cross),
    minHeight: isStacked() ? 0 : Math.max(...elements.boxes.map((box) => box.clientHeight)),
  });
  $(".diagram-canvas").setAttribute("aria-label", describePass(pass));
  const open = elements.blocks.find((block) => block.component === state.selectedBlock);
  refreshScores(pass, Boolean(open?.heads));
  renderNote(pass);
}

function columnTitles({ axes }, kind) {
  if (!axes.cross && axes[kind]) return ["keys", "queries"];
  if (kind === "encoder") return ["source", "source"];
  return kind === "decoder" ? ["input", "input"] : ["source", "target"];
}

// The values of a row are spoken, but not the numbers that change during training.
function renderNote(pass) {
  const note = $(".diagram-note"),
    isRow = state.hoverRow !== null && Boolean(pass.axes[state.selectedKind]);
  note.ariaLive = isRow ? "polite" : "off";
  if (isRow) setText(note, describeRow(pass, state.hoverRow));
  else setText(note, state.selectedBlock ? describeBlock(pass) : describeSelection(pass));
}

/** Return the weights of one query, and the prediction at its position. */
function describeRow(pass, row) {
  const kind = state.selectedKind,
    [layer, head] = state.selectedHead,
    [queries, keys] = pass.axes[kind],
    { predicted, probability } = pass.probe ?? {},
    outputRow = firstPredictedRow(kind, queries.length, pass),
    i = outputRow === null ? -1 : row - outputRow;
  if (row >= queries.length) return describeSelection(pass);
  return (
    `${kind === "cross" ? "Target" : "Token"} ${row + 1} (${queries[row]}) attends to ` +
    describeWeights(keys, pass.attention[kind][layer][head], row) +
    "." +
    (predicted?.[i] !== undefined
      ? ` Prediction: ${predicted[i]} with probability ${formatThousandths(probability[i])}.`
      : "")
  );
}

// On a narrow page, the links stand above the stacks.
const isStacked = () => $(".diagram-links").offsetWidth > 0.9 * $(".diagram-grid").offsetWidth;

function describeSelection(pass) {
  const kind = state.selectedKind,
    [layer, head] = state.selectedHead,
    weights = pass.attention[kind]?.[layer]?.[head];
  if (!weights) return "This model has no attention; it passes the input on as one vector.";
  const [queries, keys] = pass.axes[kind],
    { entropy, maxWeight } = summarizeHead(weights, queries.length, keys.length);
  return (
    describeHead(kind, layer, head, elements.boxes.length === 1) +
    ". Thicker lines: larger attention weights. Mean of the largest weight per query: " +
    maxWeight.toFixed(2) +
    "; entropy " +
    entropy.toFixed(1) +
    " bits."
  );
}

function describeBlock(pass) {
  const block = elements.blocks.find((each) => each.component === state.selectedBlock),
    parameters = state.probeInfo.component_parameters?.[block.component],
    contribution = pass.contributions?.[block.component];
  return [
    block.title + ", layer " + (block.layer + 1) + ".",
    BLOCK_TEXTS[block.kind],
    parameters ? formatCount(parameters, "parameter") + "." : "",
    contribution === undefined
      ? ""
      : "Its output has " +
        contribution.toFixed(2) +
        " times the norm of the vectors it is added to.",
  ].join(" ");
}

function describePass(pass) {
  const counts = Object.entries(pass.attention).map(
      ([kind, layers]) =>
        formatCount(layers.length * layers[0].length, "head") +
        " of " +
        KIND_TITLES[kind].toLowerCase(),
    ),
    right = pass.probe
      ? pass.probe.target.filter((token, i) => token === pass.probe.predicted[i]).length
      : 0;
  return (
    "Diagram of the model: " +
    (counts.join(", ") || "no attention") +
    (pass.probe
      ? ". " + right + " of " + pass.probe.target.length + " predicted tokens are right"
      : "")
  );
}

// The block of the head stays open, if it is.
function select(kind, layer, head) {
  const open = elements.blocks.find((block) => block.component === state.selectedBlock);
  selectKind(kind);
  state.selectedHead = [layer, head];
  if (open?.kind !== kind || open.layer !== layer) state.selectedBlock = "";
  scheduleRender();
}

/** Open a block, or close it. The links are those of a head of the open block. */
function toggleBlock({ component, kind, layer, heads }) {
  const isOpen = state.selectedBlock === component,
    [, head] = state.selectedHead;
  if (!isOpen && heads) select(kind, layer, head < heads ? head : 0);
  state.selectedBlock = isOpen ? "" : component;
  scheduleRender();
}

const isSelected = ({ dataset: { kind, layer, head } }) =>
  kind === state.selectedKind &&
  +layer === state.selectedHead[0] &&
  +head === state.selectedHead[1];

function openInInspect() {
  navigate("Inspect", {
    subject: state.modelRef,
    step: state.viewedStep,
    view: "attention",
    options: {
      kind: state.selectedKind,
      layer: state.selectedHead[0],
      head: state.selectedHead[1],
      mode: "teacher-forced", // as in the diagram
    },
    text: state.typedPass ? store.sequence.value : undefined,
  });
}

export function initDiagram() {
  const diagram = $(".diagram");
  diagram.addEventListener("click", (event) => {
    const head = event.target.closest(".head"),
      title = event.target.closest(".diagram-block-title");
    if (head) select(head.dataset.kind, +head.dataset.layer, +head.dataset.head);
    if (title) toggleBlock(elements.blocks.find((block) => block.button === title));
  });
  diagram.addEventListener("dblclick", (event) => {
    if (event.target.closest(".head")) openInInspect();
  });
  diagram.addEventListener("keydown", (event) => {
    const head = event.target.closest(".head");
    if (event.key === "Enter" && head && isSelected(head)) openInInspect();
    else moveFocus(event, elements.heads);
  });
  initRows($(".diagram-canvas"));
}

const ROW_KEYS = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };

// A row is a query: the pointer or the arrow keys select it, and the note shows its weights.
function initRows(canvas) {
  const selectRow = (row) => {
      state.hoverRow = row;
      scheduleRender();
    },
    layout = () => canvas.layout || { y: () => 0, rowHeight: 1, count: 0 };
  const onPointer = (event) => {
    const { y, rowHeight, count } = layout(),
      row = Array.from({ length: count }, (_, i) => i).find(
        (i) => Math.abs(event.offsetY - y(i)) < rowHeight / 2,
      );
    selectRow(row ?? null);
  };
  canvas.addEventListener("pointermove", onPointer);
  canvas.addEventListener("pointerdown", onPointer);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") selectRow(null); // a finger leaves after each tap
  });
  canvas.addEventListener("keydown", (event) => {
    const offset = ROW_KEYS[event.key],
      { count } = layout();
    if (offset === undefined || !count) return;
    event.preventDefault();
    const row = state.hoverRow === null ? (offset > 0 ? -1 : count) : state.hoverRow;
    selectRow(Math.max(0, Math.min(count - 1, row + offset)));
  });
  canvas.addEventListener("blur", () => selectRow(null));
}
