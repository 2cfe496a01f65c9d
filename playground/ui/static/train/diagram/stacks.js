// The stacks of the diagram: a box for each layer with a block for each sublayer, and in a block a
// button for each head. The elements are built once for an architecture and then only updated.
import { el, setText } from "../../shared/dom.js";
import { paintHeadMap } from "./head_map.js";
import { describeHead } from "./structure.js";

/**
 * Build the elements of the stacks.
 * @param {import("./structure.js").Stack[]} stacks
 * @returns {{boxes: HTMLElement[], heads: any[], blocks: any[]}}
 */
export function createStacks(stacks) {
  const heads = [],
    blocks = [],
    isSingle = stacks.length === 1;
  const boxes = stacks.map((stack) => {
    const layers = stack.layers.map((layer, i) =>
      el(
        "div",
        { className: "diagram-layer" },
        ...layer.map((block) => createBlock(block, heads, blocks, isSingle)).reverse(),
        el("span", { className: "diagram-layer-name", textContent: nameLayer(stack, i) }),
      ),
    );
    const box = el(
      "div",
      { className: "diagram-stack" },
      el("h4", { textContent: stack.title }),
      el("div", { className: "diagram-layers" }, ...layers.reverse()),
      el("p", { className: "diagram-embedding", textContent: nameEmbedding(stack) }),
    );
    box.dataset.side = stack.side;
    return box;
  });
  return { boxes, heads, blocks };
}

const isRecurrent = (stack) => stack.layers[0][0].kind === "recurrent";
/** A recurrent stack has no positions, and its attention is no layer of its own. */
const nameLayer = (stack, i) =>
  isRecurrent(stack) && stack.layers[i][0].kind === "cross" ? "" : "layer " + (i + 1);
const nameEmbedding = (stack) =>
  isRecurrent(stack) ? "token embedding" : "token + position embedding";

function createBlock(block, heads, blocks, isSingle) {
  const bar = el("i"),
    value = el("span", { className: "diagram-value" }),
    button = el(
      "button",
      { type: "button", className: "diagram-block-title" },
      el("span", { textContent: block.title }),
      value,
    ),
    maps = el("div", { className: "diagram-heads" });
  button.setAttribute("aria-pressed", "false");
  for (let head = 0; head < block.heads; head++) {
    const canvas = el("canvas"),
      map = el("button", { type: "button", className: "head", tabIndex: -1 }, canvas);
    Object.assign(map.dataset, { kind: block.kind, layer: block.layer, head });
    map.setAttribute("aria-label", describeHead(block.kind, block.layer, head, isSingle));
    heads.push({ kind: block.kind, layer: block.layer, head, button: map, canvas });
    maps.append(map);
  }
  maps.style.setProperty("--heads", String(Math.min(block.heads, 8) || 1));
  const box = el(
    "div",
    { className: "diagram-block" },
    button,
    el("span", { className: "diagram-contribution" }, bar),
    block.heads ? maps : "",
  );
  box.dataset.kind = block.kind;
  blocks.push({ ...block, box, button, bar, value });
  return box;
}

/**
 * Update the pictures and numbers of the stacks; no element is replaced.
 * @param {ReturnType<typeof createStacks>} elements
 * @param {any} pass the forward pass: attention, axes, contributions
 * @param {{kind: string, layer: number, head: number, block: string}} selected
 */
export function updateStacks({ heads, blocks }, pass, selected) {
  for (const { kind, layer, head, button, canvas } of heads) {
    const weights = pass.attention[kind]?.[layer]?.[head],
      isSelected = kind === selected.kind && layer === selected.layer && head === selected.head;
    if (weights) {
      const [rows, columns] = pass.axes[kind].map((names) => names.length);
      paintHeadMap(canvas, weights, rows, columns, kind === "decoder");
    }
    button.setAttribute("aria-pressed", String(isSelected));
    button.tabIndex = isSelected ? 0 : -1;
  }
  for (const { component, box, button, bar, value } of blocks) {
    const contribution = pass.contributions?.[component];
    box.classList.toggle("has-contribution", contribution !== undefined);
    button.setAttribute("aria-pressed", String(component === selected.block));
    if (contribution === undefined) continue;
    // The share of the sum x + f(x) that the block adds, by norm.
    bar.style.width = (100 * contribution) / (1 + contribution) + "%";
    setText(value, contribution.toFixed(2));
  }
}

/** Return the explanation of the numbers and bars of the blocks. */
export const createLegend = () =>
  el(
    "p",
    { className: "diagram-legend pg-hint" },
    el("b", { textContent: "Numbers and bars: " }),
    "how long the vectors are that a block adds, relative to those it adds them to. At 1.00 both " +
      "are equally long. Click a block for details.",
  );
