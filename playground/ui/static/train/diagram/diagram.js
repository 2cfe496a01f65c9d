// The diagram of a model: a box for each layer with a block for each sublayer, in a block a button
// for each head, and between the stacks the links of the selected head. While the model trains, its
// elements stay and only their pictures and numbers change.
import { cssVariable } from "../../shared/palette.js";
import { useCanvas } from "../../shared/components/use_canvas.js";
import { html, useRef } from "../../vendor/preact.js";
import { paintHeadMap, paintLinks } from "./paint.js";
import { describeHead, partsOf } from "./structure.js";
import { moveFocus, Switch } from "./switches.js";

/** @import { Switches } from "./switches.js" */
/** @import { Block as BlockInfo, Stack as StackInfo } from "./structure.js" */
/**
 * @typedef {{
 *   stacks: StackInfo[],
 *   pass: any,
 *   selected: { kind: string, layer: number, head: number, block?: string },
 *   onSelect: (kind: string, layer: number, head: number) => void,
 *   onBlock: (block: BlockInfo) => void,
 *   switches?: Switches,
 * }} Props of the diagram, and of its parts; without switches, no part can be switched off
 */

const MANY_ROWS = 14;
const ROW_KEYS = /** @type {Record<string, number>} */ ({
  ArrowUp: -1,
  ArrowDown: 1,
  Home: -Infinity,
  End: Infinity,
});

/** @param {Props & { block: BlockInfo, head: number }} props */
function Head({ stacks, pass, selected, onSelect, switches, block: { kind, layer }, head }) {
  const part = { kind, layer, head },
    weights = pass.attention[kind]?.[layer]?.[head],
    isSelected = kind === selected.kind && layer === selected.layer && head === selected.head;
  const canvas = useCanvas(
    (element) => {
      const [rows, columns] = pass.axes[kind];
      if (weights) paintHeadMap(element, weights, rows.length, columns.length, kind === "decoder");
    },
    [weights],
  );
  return html`<div class=${switches?.isOff(part) ? "head-cell off" : "head-cell"}>
    <button
      type="button"
      class="head"
      tabindex=${isSelected ? 0 : -1}
      data-kind=${kind}
      data-layer=${layer}
      data-head=${head}
      aria-label=${describeHead(kind, layer, head, stacks.length === 1)}
      aria-pressed=${String(isSelected)}
      onClick=${() => onSelect(kind, layer, head)}
    >
      <canvas ref=${canvas}></canvas>
    </button>
    ${
      switches &&
      html`<${Switch}
        parts=${[part]}
        name=${switches.nameOf(part)}
        switches=${switches}
        tabindex=${isSelected ? 0 : -1}
      />`
    }
  </div>`;
}

/**
 * The switch of a block: of all its heads.
 * @param {Props & { block: BlockInfo, side: string }} props
 */
function BlockSwitch({ block, side, switches }) {
  const { layer, heads, title } = block;
  if (!switches || heads === 1) return null;
  const parts = partsOf(block, side),
    name = heads
      ? `all ${heads} heads of ${title.toLowerCase()} ${layer + 1}`
      : switches.nameOf(parts[0]);
  return html`<${Switch} parts=${parts} name=${name} switches=${switches} />`;
}

/** @param {Props & { block: BlockInfo, side: string }} props */
function Block(props) {
  const { pass, selected, block, side, onBlock, switches } = props,
    contribution = pass.contributions?.[block.component],
    hasContribution = contribution !== undefined,
    // of the sum x + f(x) that the block adds, by norm
    share = hasContribution ? (100 * contribution) / (1 + contribution) : 0,
    isOff = switches && partsOf(block, side).every(switches.isOff);
  return html`<div
    class=${"diagram-block" + (hasContribution ? " has-contribution" : "") + (isOff ? " off" : "")}
    data-kind=${block.kind}
  >
    <div class="diagram-block-head">
      <button
        type="button"
        class="diagram-block-title"
        aria-pressed=${String(block.component === selected.block)}
        onClick=${() => onBlock(block)}
      >
        <span>${block.title}</span>
        <span class="diagram-value">${hasContribution ? contribution.toFixed(2) : ""}</span>
      </button>
      <${BlockSwitch} ...${props} />
    </div>
    <span class="diagram-contribution"><i style=${{ width: share + "%" }}></i></span>
    ${
      block.heads > 0 &&
      html`<div
        class="diagram-heads"
        style=${{ "--heads": Math.min(block.heads, switches ? 4 : 8) }}
      >
        ${Array.from(
          { length: block.heads },
          (_, head) => html`<${Head} key=${head} ...${props} head=${head} />`,
        )}
      </div>`
    }
  </div>`;
}

/** @param {StackInfo} stack */
const isRecurrent = (stack) => stack.layers[0][0].kind === "recurrent";

/** A recurrent stack has no positions, and its attention is no layer of its own. */
const nameLayer = (/** @type {StackInfo} */ stack, /** @type {number} */ layer) =>
  isRecurrent(stack) && stack.layers[layer][0].kind === "cross" ? "" : "layer " + (layer + 1);

/** @param {Props & { stack: StackInfo }} props */
function Stack({ stack, ...props }) {
  const layers = stack.layers.map(
    (blocks, layer) =>
      html`<div class="diagram-layer" key=${layer}>
        ${blocks
          .map(
            (block) =>
              html`<${Block}
                key=${block.component}
                ...${props}
                side=${stack.side}
                block=${block}
              />`,
          )
          .reverse()}
        <span class="diagram-layer-name">${nameLayer(stack, layer)}</span>
      </div>`,
  );
  return html`<div class="diagram-stack" data-side=${stack.side}>
    <h4>${stack.title}</h4>
    <div class="diagram-layers">${layers.reverse()}</div>
    <p class="diagram-embedding">
      ${isRecurrent(stack) ? "token embedding" : "token + position embedding"}
    </p>
  </div>`;
}

/**
 * The height of the stacks beside the links; 0 on a narrow page, where they are below them.
 * @param {HTMLElement} grid
 */
function heightBeside(grid) {
  const links = /** @type {HTMLElement} */ (grid.querySelector(".diagram-links")),
    controls = /** @type {HTMLElement | null} */ (grid.querySelector(".switch-controls")),
    stacks = [...grid.querySelectorAll(".diagram-stack")];
  if (links.offsetWidth > 0.9 * grid.offsetWidth) return 0;
  return Math.max(...stacks.map((stack) => stack.clientHeight)) - (controls?.offsetHeight ?? 0);
}

/** The tokens with the links of the selected head. A row is a query. */
function Links({ grid, view, kind, isOff, label, row, onRow, controls }) {
  const canvas = useCanvas(
    (element) =>
      view &&
      paintLinks(element, {
        ...view,
        color: cssVariable(isOff ? "--pg-hatch" : "--pg-" + kind),
        memoryColor: cssVariable("--pg-cross"),
        minHeight: heightBeside(grid.current),
      }),
    [view, isOff],
    grid,
  );
  const onPointer = ({ offsetY, currentTarget: { layout } }) => {
    const { y, rowHeight, count } = layout ?? { count: 0 },
      rows = Array.from({ length: count }, (_, i) => i);
    onRow(rows.find((i) => Math.abs(offsetY - y(i)) < rowHeight / 2) ?? null);
  };
  const onKeyDown = (event) => {
    const offset = ROW_KEYS[event.key],
      count = event.currentTarget.layout?.count;
    if (offset === undefined || !count) return;
    event.preventDefault();
    const from = row ?? (offset > 0 ? -1 : count);
    onRow(Math.max(0, Math.min(count - 1, from + offset)));
  };
  // The controls stay beside the stacks, also where the links are much higher.
  const isLong = view?.queries.length > MANY_ROWS;
  return html`<div class=${isLong ? "diagram-links long" : "diagram-links"}>
    <canvas
      ref=${canvas}
      class="diagram-canvas"
      role="img"
      tabindex="0"
      aria-label=${label}
      onPointerMove=${onPointer}
      onPointerDown=${onPointer}
      onPointerLeave=${(event) => {
        if (event.pointerType === "mouse") onRow(null); // a finger leaves after each tap
      }}
      onKeyDown=${onKeyDown}
      onBlur=${() => onRow(null)}
    ></canvas>
    ${controls}
  </div>`;
}

/**
 * @param {Props & {
 *   links: Omit<Parameters<typeof paintLinks>[1], "color" | "memoryColor" | "minHeight"> | null,
 *   label: string,
 *   row: number | null,
 *   onRow: (row: number | null) => void,
 *   controls?: any,
 * }} props `links` are those of the selected head, with `controls` below them; `label` describes
 *   them, and `row` is the one that the user points at
 */
export function Diagram({ links, label, row, onRow, controls, ...props }) {
  const grid = useRef(/** @type {HTMLElement | null} */ (null)),
    [first, ...others] = props.stacks;
  return html`<div
    ref=${grid}
    class="diagram-grid"
    role="group"
    aria-label="Heads and blocks of the model"
    data-stacks=${props.stacks.length || undefined}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => moveFocus(event, grid.current)}
  >
    ${
      first &&
      html`<div key="first">
        <${Stack} ...${props} stack=${first} />
        <p class="diagram-legend pg-hint">
          <b>Numbers and bars: </b>how long the vectors are that a block adds, relative to those it
          adds them to. At 1.00 both are equally long. Click a block for details.
        </p>
      </div>`
    }
    <${Links}
      key="links"
      grid=${grid}
      view=${links}
      kind=${props.selected.kind}
      isOff=${Boolean(props.switches?.isOff(props.selected))}
      label=${label}
      row=${row}
      onRow=${onRow}
      controls=${controls}
    />
    ${others.map((stack) => html`<${Stack} key=${stack.side} ...${props} stack=${stack} />`)}
  </div>`;
}
