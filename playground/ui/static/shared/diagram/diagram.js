// The diagram of a model: a box for each layer with a block for each sublayer, in a block a map for
// each head, and between the stacks the links of the selected head. While the model trains, its
// elements stay and only their pictures and numbers change.
import { keyOf } from "../../engine/parts.js";
import { formatWholePercent } from "../format.js";
import { useCanvas } from "../components/hooks.js";
import { html, useMemo, useRef } from "../../vendor/preact.js";
import { describeRole, roleOf } from "./describe.js";
import { paintHeadMap, paintLinks } from "./paint.js";
import { buildLinks, describeHead, hasHead, partsOf } from "./structure.js";
import { moveFocus, Switch } from "./switches.js";
/** @import { Component } from "../../engine/types.js" */
/** @import { Switches } from "./switches.js" */
/** @import { Block as BlockInfo, Selection, Stack as StackInfo } from "./structure.js" */
/**
 * @typedef {{ stacks: StackInfo[], pass: any, selected: Selection, row: number | null,
 *   open?: string, details?: any, onSelect: (kind: string, layer: number, head: number) => void,
 *   onBlock: (block: BlockInfo) => void, switches?: Switches,
 *   importance?: Map<string, number> | null, parts?: Component[] | null }} Props of the diagram,
 *   and of its parts. `row` is the query to highlight, `open` the sublayer whose `details` are
 *   below its heads. Without switches, no part can be switched off. The importance of parts, by
 *   key, takes the place of what blocks add. `parts` has all that can be switched off, once that is
 *   known: before, position vectors have no switch.
 */

const LEGENDS = {
  importance:
    "Bar: the share of right tokens of unseen inputs that become wrong when this part alone is " +
    "off. Click for details.",
  contributions:
    "Number and bar: how long the vectors are that this block adds, relative to those it adds " +
    "them to. At 1.00 both are equally long. Click for details.",
};
const MAX_COLUMNS = 4; // of heads in a block
const MANY_ROWS = 14;
const TOKEN_WIDTH = 40; // pixels
/** @type {Record<string, number>} */
const ROW_KEYS = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };

/** @param {Props & { part: Component, tabindex?: number, isOff?: boolean }} props */
function PartSwitch({ part, switches, importance, tabindex, isOff = switches?.isOff(part) }) {
  if (!switches) return null;
  const name = switches.nameOf(part),
    share = importance?.get(keyOf(part)) ?? 0;
  return html`<${Switch}
      parts=${[part]}
      ...${{ name, isOff, tabindex }}
      toggle=${switches.toggle}
    />
    ${
      importance &&
      html`<span
        class="importance"
        title="Without ${name}, ${formatWholePercent(share)} of the right tokens become wrong"
      >
        <i style=${{ width: `${100 * share}%` }} />
      </span>`
    }`;
}

/** Return the previous weights if these are equal. @param {number[] | undefined} weights */
function useUnchanged(weights) {
  const last = useRef(weights),
    { length = 0 } = last.current ?? {},
    isEqual = weights?.length === length && weights.every((each, i) => each === last.current?.[i]);
  if (!isEqual) last.current = weights;
  return last.current;
}

/**
 * What a head shows and does.
 * @typedef {Pick<Props, "pass" | "selected" | "row" | "onSelect" | "switches" | "importance">}
 *   HeadProps
 * @param {HeadProps & { block: Pick<BlockInfo, "kind" | "layer">, head: number }} props
 */
function Head({ block: { kind, layer }, head, ...props }) {
  const { pass, selected, row, onSelect, switches, importance } = props,
    isOneStack = !pass.axes.cross,
    part = { kind, layer, head },
    weights = useUnchanged(pass.attention[kind]?.[layer]?.[head]),
    nColumns = pass.axes[kind]?.[1].length,
    isSelected = kind === selected.kind && layer === selected.layer && head === selected.head,
    hasRow = (kind === "encoder") === (selected.kind === "encoder"),
    highlight = hasRow ? row : null,
    isOff = switches?.isOff(part),
    tabindex = isSelected ? 0 : -1;
  const canvas = useCanvas(
    (element) => {
      const [rows, columns] = pass.axes[kind],
        isCausal = kind === "decoder";
      if (weights) paintHeadMap(element, weights, rows.length, columns.length, isCausal, highlight);
    },
    [weights, nColumns, highlight],
  );
  const render = () => {
    const role = weights && roleOf(pass, part),
      title =
        `Largest weight: ${(Math.max(...(weights ?? [0])) / 1000).toFixed(2)}, the darkest color.` +
        (role ? ` ${describeRole(role)}.` : "");
    return html`<div class=${isOff ? "head-cell off" : "head-cell"}>
      <button
        type="button"
        class="head"
        tabindex=${tabindex}
        data-kind=${kind}
        data-layer=${layer}
        data-head=${head}
        title=${title}
        aria-label=${describeHead(kind, layer, head, isOneStack)}
        aria-pressed=${String(isSelected)}
        onClick=${() => onSelect(kind, layer, head)}
      >
        <canvas ref=${canvas}></canvas>
      </button>
      <span class="head-role">${role?.name.replace("previous", "prev.") ?? ""}</span>
      <span class="head-switch">
        <span>${head + 1}</span><${PartSwitch} ...${props} ...${{ part, isOff, tabindex }} />
      </span>
    </div>`;
  };
  // A row that is pointed at, and weights that are as before, change no element.
  const share = importance?.get(keyOf(part)),
    isMeasured = Boolean(importance),
    drawn = [
      weights,
      nColumns,
      isSelected,
      isOff,
      switches,
      isOneStack,
      isMeasured,
      share,
      onSelect,
    ];
  return useMemo(render, drawn);
}

/**
 * @param {HeadProps & { block: Pick<BlockInfo, "kind" | "layer" | "heads">, columns: number }}
 *   props
 */
const Heads = ({ columns, ...props }) =>
  html`<div class="diagram-heads" style=${{ "--heads": columns }}>
    ${Array.from(
      { length: props.block.heads },
      (_, head) => html`<${Head} key=${head} ...${props} head=${head} />`,
    )}
  </div>`;

/**
 * The heads of one kind of attention, a row for each layer. The arrow keys move between heads.
 * @param {Pick<Props, "pass" | "selected" | "onSelect"> & { row?: number | null }} props
 */
export function HeadGrid({ row = null, ...props }) {
  const { pass, selected } = props,
    { kind } = selected,
    onKeyDown = (/** @type {KeyboardEvent} */ event) =>
      moveFocus(event, /** @type {HTMLElement} */ (event.currentTarget));
  return html`<div
    class="diagram pg-head-grid"
    role="group"
    aria-label="Heads; use the arrow keys to move"
    onKeyDown=${onKeyDown}
  >
    ${pass.attention[kind].map(
      (/** @type {any[]} */ { length: heads }, /** @type {number} */ layer) => [
        html`<span key=${layer}>layer ${layer + 1}</span>`,
        html`<${Heads}
          key=${`heads ${layer}`}
          ...${props}
          row=${row}
          block=${{ kind, layer, heads }}
          columns=${Math.max(MAX_COLUMNS, heads)}
        />`,
      ],
    )}
  </div>`;
}

/** @param {Props & { block: BlockInfo, side: string }} props */
function BlockSwitch({ block, side, ...props }) {
  const { layer, heads, title } = block,
    { switches } = props,
    parts = partsOf(block, side);
  if (!switches || heads === 1) return null;
  return heads
    ? html`<${Switch}
        parts=${parts}
        name=${`all ${heads} heads of ${title.toLowerCase()} ${layer + 1}`}
        isOff=${parts.every(switches.isOff)}
        toggle=${switches.toggle}
      />`
    : html`<${PartSwitch} ...${props} part=${parts[0]} />`;
}

/** @param {Props & { block: BlockInfo, side: string }} props */
function Block(props) {
  const { pass, selected, open, details, block, side, onBlock, switches, importance } = props,
    contribution = importance ? undefined : pass.contributions?.[block.component],
    // of the sum x + f(x) that the block adds, by norm
    share = (100 * (contribution ?? 0)) / (1 + (contribution ?? 0)),
    isOpen = block.component === open,
    states = {
      "has-contribution": contribution !== undefined,
      owner: hasHead(block, selected),
      unused: switches?.isOff(selected), // if it is the owner
      off: switches && partsOf(block, side).every(switches.isOff),
    },
    names = Object.entries(states).map(([name, isOn]) => (isOn ? " " + name : ""));
  return html`<div class=${"diagram-block" + names.join("")} data-kind=${block.kind}>
    <div class="diagram-block-head">
      <button
        type="button"
        class="diagram-block-title"
        title=${LEGENDS[importance ? "importance" : "contributions"]}
        aria-expanded=${open === undefined ? undefined : String(isOpen)}
        onClick=${() => onBlock(block)}
      >
        <span>${block.title}</span>
        <span class="diagram-value">${contribution?.toFixed(2)}</span>
      </button>
      <${BlockSwitch} ...${props} />
    </div>
    <span class="diagram-contribution"><i style=${{ width: share + "%" }}></i></span>
    ${
      block.heads > 0 &&
      html`<${Heads} ...${props} columns=${Math.min(block.heads, MAX_COLUMNS)} />`
    }
    ${isOpen && html`<div class="diagram-details">${details}</div>`}
  </div>`;
}

/** @param {StackInfo} stack */
const isRecurrent = (stack) => stack.layers[0][0].kind === "recurrent";

/** A recurrent stack has no positions, and its attention is no layer of its own. */
const nameLayer = (/** @type {StackInfo} */ stack, /** @type {number} */ layer) =>
  isRecurrent(stack) && stack.layers[layer][0].kind === "cross" ? "" : "layer " + (layer + 1);

/** @param {Props & { stack: StackInfo }} props */
function Stack({ stack, ...props }) {
  const kind = props.stacks.length > 1 && stack.side === "encoder" ? "source" : "target",
    positions = props.parts?.find((part) => part.kind === `${kind} positions`),
    layers = stack.layers.map(
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
    ),
    hasPositions = !isRecurrent(stack) && (positions || !props.parts);
  return html`<div class="diagram-stack" data-side=${stack.side}>
    <h3>${stack.title}</h3>
    <div class="diagram-layers">${layers.reverse()}</div>
    <div class="diagram-embedding">
      <span>${hasPositions ? "token + position embedding" : "token embedding"}</span>
      ${positions && html`<${PartSwitch} ...${props} part=${positions} />`}
    </div>
  </div>`;
}

/** Return null on a narrow page, where the links are above the stacks. @param {HTMLElement} grid */
function measureStacks(grid) {
  const find = (/** @type {string} */ selector) =>
      /** @type {HTMLElement[]} */ ([...grid.querySelectorAll(selector)]),
    heightOf = (/** @type {HTMLElement[]} */ elements) =>
      elements.reduce((sum, each) => sum + each.offsetHeight, 0),
    [links] = find(".diagram-links"),
    [heads] = find(".owner .diagram-heads");
  if (links.offsetWidth > 0.9 * grid.offsetWidth) return null;
  // The links stay where they are when a block opens.
  const heights = find(".diagram-stack").map(
      (stack) =>
        stack.clientHeight -
        heightOf([...stack.querySelectorAll(/** @type {any} */ (".diagram-details"))]),
    ),
    box = heads?.getBoundingClientRect();
  return {
    height: Math.max(0, ...heights) - heightOf(find(".diagram-canvas ~ *")),
    ownerY: box && box.top + box.height / 2 - links.getBoundingClientRect().top,
  };
}

/**
 * Links on a canvas, which `paint` draws again when an input changes. A row is a query: `onPoint`
 * receives the one under the pointer, `onSelect` that of a click or an arrow key.
 * @param {{ paint: (canvas: HTMLCanvasElement) => void, inputs: unknown[], label: string,
 *   row: number | null, onPoint?: (row: number | null) => void,
 *   onSelect: (row: number | null) => void, box?: { current: Element | null } }} props `box` is the
 *   element whose size matters
 */
export function LinksCanvas({ paint, inputs, label, row, onPoint, onSelect, box }) {
  const canvas = useCanvas(paint, inputs, box);
  const rowAt = (/** @type {any} */ { offsetY, currentTarget: { layout } }) => {
    const { y, rowHeight, count } = layout ?? { count: 0 },
      rows = Array.from({ length: count }, (_, i) => i);
    return rows.find((i) => Math.abs(offsetY - y(i)) < rowHeight / 2) ?? null;
  };
  const onKeyDown = (/** @type {any} */ event) => {
    const offset = ROW_KEYS[event.key],
      count = event.currentTarget.layout?.count;
    if (offset === undefined || !count) return;
    event.preventDefault();
    const from = row ?? (offset > 0 ? -1 : count);
    onSelect(Math.max(0, Math.min(count - 1, from + offset)));
  };
  return html`<canvas
    ref=${canvas}
    class="diagram-canvas"
    role="img"
    tabindex="0"
    aria-label=${label}
    onPointerMove=${(/** @type {any} */ event) => onPoint?.(rowAt(event))}
    onPointerDown=${(/** @type {any} */ event) => onSelect(rowAt(event))}
    onPointerLeave=${(/** @type {PointerEvent} */ event) => {
      if (event.pointerType === "mouse") onPoint?.(null); // a finger leaves after each tap
    }}
    onKeyDown=${onKeyDown}
    onBlur=${() => onPoint?.(null)}
  ></canvas>`;
}

/** The tokens with the links of the selected head. @param {any} props */
function Links({ grid, stacks, pass, selected, isOff, label, row, onRow, controls, minHeight }) {
  const { kind, layer, head } = selected,
    view = pass && buildLinks(pass, kind),
    isLeft = stacks.length > 1 && kind === "encoder";
  const paint = (/** @type {HTMLCanvasElement} */ element) => {
    const { height = 0, ownerY = undefined } = measureStacks(grid.current) ?? {};
    if (!view) return;
    const weights = pass.attention[kind]?.[layer]?.[head];
    paintLinks(element, {
      ...view,
      heads: weights ? [{ weights, color: isOff ? "--pg-hatch" : "--pg-" + kind }] : [],
      highlight: row,
      minHeight: Math.max(height, minHeight),
      owner: ownerY === undefined ? null : { y: ownerY, isLeft },
      tokenWidth: TOKEN_WIDTH,
    });
  };
  // The controls stay beside the stacks, also where the links are much higher.
  const isLong = view?.queries.length > MANY_ROWS;
  return html`<div class=${isLong ? "diagram-links long" : "diagram-links"}>
    <${LinksCanvas}
      ...${{ paint, label, row }}
      inputs=${[pass, kind, layer, head, isOff, row]}
      onPoint=${onRow}
      onSelect=${onRow}
      box=${grid}
    />
    ${controls}
  </div>`;
}

/**
 * @param {Props & { label: string, onRow: (row: number | null) => void, controls?: any,
 *   minHeight?: number }} props `label` describes the links, which have `controls` below them and
 *   this height at least; `onRow` receives the row that the user points at
 */
export function Diagram({ label, onRow, controls, minHeight = 0, ...props }) {
  const grid = useRef(/** @type {HTMLElement | null} */ (null)),
    { stacks, pass, selected, switches } = props,
    // One stack is beside its queries.
    [first, last] = stacks.length === 1 ? [null, stacks[0]] : stacks,
    nRows = pass?.axes[selected.kind]?.[0].length ?? 0,
    row = props.row !== null && props.row < nRows ? props.row : null;
  const onKeyDown = (/** @type {KeyboardEvent} */ event) =>
    moveFocus(event, /** @type {HTMLElement} */ (grid.current));
  return html`<div
    ref=${grid}
    class="diagram-grid"
    role="group"
    aria-label="Heads and blocks of the model"
    data-stacks=${stacks.length || undefined}
    onKeyDown=${onKeyDown}
  >
    ${first && html`<${Stack} key="first" ...${props} row=${row} stack=${first} />`}
    <${Links}
      key="links"
      ...${{ grid, stacks, pass, selected, label, row, onRow, controls, minHeight }}
      isOff=${Boolean(switches?.isOff(selected))}
    />
    ${last && html`<${Stack} key="last" ...${props} row=${row} stack=${last} />`}
  </div>`;
}
