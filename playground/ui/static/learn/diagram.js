// The diagram of the Train tab as a component: stacks with heads, and links between tokens.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { el } from "../shared/dom.js";
import { cssVariable, onThemeChange } from "../shared/palette.js";
import { paintLinks } from "../train/diagram/links.js";
import { moveFocus } from "../train/diagram/move_focus.js";
import { createLegend, createStacks, updateStacks } from "../train/diagram/stacks.js";
import { buildStacks, describeHead } from "../train/diagram/structure.js";

/** Return what the links show: the weights of a head, and the predicted tokens. */
export function buildLinks(pass, { kind, layer, head }, highlight) {
  const [queries, keys] = pass.axes[kind];
  return {
    keys,
    queries,
    weights: pass.attention[kind][layer][head],
    output: kind === "encoder" ? null : pass.probe,
    titles: kind === "cross" ? ["source", "target"] : ["keys", "queries"],
    highlight,
    hasMemory: true,
  };
}

/** Return the row of the canvas at a height, or null. */
function rowAt({ count, rowHeight, y }, offsetY) {
  const rows = Array.from({ length: count }, (_, i) => i);
  return rows.find((i) => Math.abs(offsetY - y(i)) < rowHeight / 2) ?? null;
}

function createElements(grid, info, pass) {
  const stacks = createStacks(buildStacks(info, pass.attention)),
    canvas = /** @type {any} */ (el("canvas", { className: "diagram-canvas" })),
    links = el("div", { className: "diagram-links" }, canvas);
  canvas.setAttribute("role", "img");
  const first = el("div", {}, stacks.boxes[0], createLegend());
  grid.replaceChildren(first, links, stacks.boxes[1]);
  return { ...stacks, canvas, links };
}

function paint(grid, { boxes, canvas, links }, pass, selection, highlight) {
  const isStacked = links.offsetWidth > 0.9 * grid.offsetWidth;
  canvas.setAttribute(
    "aria-label",
    "Attention weights between tokens: " +
      describeHead(selection.kind, selection.layer, selection.head, false),
  );
  paintLinks(canvas, {
    ...buildLinks(pass, selection, highlight),
    color: cssVariable("--pg-" + selection.kind),
    memoryColor: cssVariable("--pg-cross"),
    minHeight: isStacked ? 0 : Math.max(...boxes.map((box) => box.clientHeight)),
  });
}

/**
 * @param {{
 *   info: any,
 *   pass: any,
 *   selection: { kind: string, layer: number, head: number },
 *   part: string,
 *   onSelect: (kind: string, layer: number, head: number) => void,
 *   onBlock: (kind: string) => void,
 * }} props `part` is highlighted; `onBlock` receives the kind of a clicked block
 */
export function Diagram({ info, pass, selection, part, onSelect, onBlock }) {
  const grid = useRef(/** @type {any} */ (null)),
    elements = useRef(/** @type {any} */ (null)),
    [row, setRow] = useState(/** @type {number | null} */ (null));
  useEffect(() => {
    elements.current = createElements(grid.current, info, pass);
  }, [info]);
  useEffect(() => {
    const element = grid.current; // the effect ends after the element has left the page
    const redraw = () => {
      updateStacks(elements.current, pass, { ...selection, block: "" });
      paint(element, elements.current, pass, selection, row);
    };
    redraw();
    const resize = new ResizeObserver(redraw),
      stopTheme = onThemeChange(redraw);
    resize.observe(element);
    return () => {
      resize.disconnect();
      stopTheme();
    };
  }, [info, pass, selection, row]);
  const onClick = ({ target }) => {
    const head = target.closest(".head"),
      title = target.closest(".diagram-block-title");
    if (head) onSelect(head.dataset.kind, Number(head.dataset.layer), Number(head.dataset.head));
    if (title) onBlock(title.closest(".diagram-block").dataset.kind);
  };
  const onPointerMove = ({ offsetY, target }) =>
    setRow(
      target === elements.current.canvas && target.layout ? rowAt(target.layout, offsetY) : null,
    );
  return html`<div class="diagram" data-part=${part}>
    <div
      ref=${grid}
      class="diagram-grid"
      data-stacks="2"
      onClick=${onClick}
      onKeyDown=${(event) => moveFocus(event, elements.current.heads)}
      onPointerMove=${onPointerMove}
      onPointerLeave=${() => setRow(null)}
    ></div>
  </div>`;
}
