// The diagram of an exported model: stacks of layers with a map and a switch for each head, and the
// links of the selected head between its tokens.
import { html } from "../vendor/preact.js";
import { useCanvas } from "../shared/components/use_canvas.js";
import { formatWholePercent } from "../shared/format.js";
import { cssVariable } from "../shared/palette.js";
import { paintHeadMap, paintLinks } from "../train/diagram/paint.js";
import { buildStacks } from "../train/diagram/structure.js";
import { moveFocus, Switch } from "../train/diagram/switches.js";
import { EXPLANATIONS, OpenBlock, shorten } from "./block.js";
import { data, displayed, importance, isSingle, model, openBlock, parts } from "./state.js";
import { row, select, selected, switches, weightsOf } from "./state.js";
/** @import { Component } from "../engine/types.js" */

const { n_layers, n_heads } = model.config;
export const STACKS = buildStacks(
  { architecture: data.architecture, n_layers },
  Object.fromEntries(model.kinds.map((kind) => [kind, Array(n_layers).fill(Array(n_heads))])),
);

const toThousandths = (weights) => Array.from(weights, (weight) => Math.round(1000 * weight));

/** How much a part matters, and its switch. @param {{ part: Component }} props */
function PartSwitch({ part }) {
  const share = importance.value.get(part) ?? 0,
    name = switches.nameOf(part);
  return html`<span
      class="importance"
      title="Without ${name}, ${formatWholePercent(share)} of the right tokens become wrong"
    >
      <i style=${{ width: `${100 * share}%` }} />
    </span>
    <${Switch} parts=${[part]} name=${name} switches=${switches} />`;
}

/** @param {{ head: Component }} props */
function HeadMap({ head }) {
  const { weights, queries, keys } = weightsOf(head),
    paint = (canvas) =>
      paintHeadMap(canvas, weights, queries.length, keys.length, head.kind === "decoder");
  return html`<canvas ref=${useCanvas(paint, [displayed.value])} />`;
}

/** @param {{ head: Component }} props */
function Head({ head }) {
  const isSelected = selected.value === head,
    name = switches.nameOf(head);
  return html`<div class=${"head-cell" + (switches.isOff(head) ? " off" : "")}>
    <button
      type="button"
      class="head"
      tabindex=${isSelected ? 0 : -1}
      aria-pressed=${String(isSelected)}
      aria-label=${`${name}: show its links`}
      title=${name}
      onClick=${() => select(head)}
    >
      <${HeadMap} head=${head} />
    </button>
    <${PartSwitch} part=${head} />
  </div>`;
}

/** @param {{ block: import("../train/diagram/structure.js").Block, side: string }} props */
function Block({ block: { kind, layer, heads, title, component }, side }) {
  const partKind = heads ? kind : `${side} ${kind}`,
    components = parts.filter((part) => part.kind === partKind && part.layer === layer),
    isOpen = openBlock.value === component,
    isHere = components.includes(selected.value),
    allName = `all ${heads} heads of ${title.toLowerCase()} ${layer + 1}`,
    open = () => {
      openBlock.value = isOpen ? "" : component;
      if (!isOpen && heads && !isHere) select(components[0]);
    };
  return html`<section
    class=${"block" + (components.every(switches.isOff) ? " off" : "") + (isOpen ? " open" : "")}
    data-kind=${kind}
  >
    <div class="block-title">
      <button type="button" aria-expanded=${String(isOpen)} onClick=${open}>${title}</button>
      ${heads > 1 && html`<${Switch} parts=${components} name=${allName} switches=${switches} />`}
      ${!heads && html`<${PartSwitch} part=${components[0]} />`}
    </div>
    ${
      heads > 0 &&
      html`<div class="heads">
        ${components.map((each) => html`<${Head} key=${each.head} head=${each} />`)}
      </div>`
    }
    ${
      isOpen &&
      html`<${OpenBlock} kind=${kind} component=${component} head=${isHere && selected.value} />`
    }
  </section>`;
}

/** @param {{ stack: import("../train/diagram/structure.js").Stack, title: string }} props */
export function Stack({ stack: { side, layers }, title }) {
  const kind = side === "encoder" && !isSingle ? "source positions" : "target positions",
    positions = parts.find((part) => part.kind === kind),
    boxes = layers.map(
      (blocks, layer) =>
        html`<div class="layer" key=${layer}>
          <h3>Layer ${layer + 1}</h3>
          ${blocks
            .map((block) => html`<${Block} key=${block.component} block=${block} side=${side} />`)
            .reverse()}
        </div>`,
    );
  return html`<div
    class="stack"
    data-side=${side}
    onKeyDown=${(event) => moveFocus(event, document)}
  >
    <h2>${title}</h2>
    ${boxes.reverse()}
    <div class="embedding">
      <span>token${positions && ` + ${switches.nameOf(positions)}`}</span>
      ${positions && html`<${PartSwitch} part=${positions} />`}
    </div>
  </div>`;
}

/** The attention of the selected head as links between tokens. */
export function Links() {
  const head = selected.value,
    { output } = displayed.value,
    { weights, queries, keys, outputRow } = weightsOf(head),
    short = (tokens) => tokens.map((token) => shorten(token, 4)),
    paint = (canvas) =>
      paintLinks(canvas, {
        keys: short(keys),
        queries: short(queries),
        weights: toThousandths(weights),
        output: outputRow !== null && {
          predicted: short(output.predicted),
          target: short(output.target),
          probability: output.probability,
        },
        outputRow: outputRow ?? 0,
        titles: [
          head.kind === "cross" ? "input" : "tokens",
          head.kind === "encoder" ? "reading" : "output so far",
          "output",
        ],
        color: cssVariable(switches.isOff(head) ? "--pg-hatch" : `--pg-${head.kind}`),
        highlight: row.value,
        memoryColor: cssVariable("--pg-cross"),
        hasMemory: head.kind === "cross",
        minHeight: 60 + 22 * Math.min(14, data.max_tokens), // the page stays where it is
      }),
    ref = useCanvas(paint, [displayed.value, head, row.value, switches.isOff(head)]),
    point = ({ offsetY, target: { layout } }) => {
      const isAt = (_, i) => Math.abs(offsetY - layout.y(i)) < layout.rowHeight / 2,
        at = queries.findIndex(isAt);
      row.value = at < 0 ? null : at;
    };
  return html`<div class="links">
    <canvas
      ref=${ref}
      role="img"
      aria-label=${`Attention weights of ${switches.nameOf(head)}`}
      onPointerMove=${point}
      onPointerDown=${point}
      onPointerLeave=${() => openBlock.value || (row.value = null)}
    />
    <p>
      <b>${switches.nameOf(head)}</b>${
        switches.isOff(head)
          ? " is off. It still reads, but what it reads is not used."
          : `: ${EXPLANATIONS[head.kind]} Thicker lines: it reads more. ` +
            "Point at a token for its lines alone."
      }
    </p>
  </div>`;
}
