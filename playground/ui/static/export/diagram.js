// The diagram of an exported model: stacks of layers with a map and a switch for each head, and the
// links of the selected head between its tokens.
import { html } from "../vendor/preact.js";
import { keyOf } from "../engine/forward_pass.js";
import { cssVariable } from "../shared/palette.js";
import { paintLinks } from "../train/diagram/links.js";
import { moveFocus } from "../train/diagram/move_focus.js";
import { buildStacks, firstPredictedRow } from "../train/diagram/structure.js";
import { EXPLANATIONS, OpenBlock } from "./block.js";
import { HeadMap, shorten, toThousandths, useCanvas, weightsOf } from "./head.js";
import {
  data,
  importance,
  isOff,
  isSingle,
  model,
  nameOf,
  openBlock,
  parts,
  percent,
  row,
  select,
  selected,
  displayed,
  toggle,
} from "./state.js";

/** @typedef {import("../engine/forward_pass.js").Component} Component */
/** @typedef {import("../train/diagram/structure.js").Stack} StackInfo */

const { n_layers, n_heads } = model.config;
export const STACKS = buildStacks(
  { architecture: data.architecture, n_layers },
  Object.fromEntries(
    model.kinds.map((kind) => [kind, Array(n_layers).fill(Array(n_heads).fill([]))]),
  ),
);

/** @param {{ components: Component[], name: string }} props */
const Switch = ({ components, name }) =>
  html`<button
    type="button"
    role="switch"
    class="switch"
    aria-checked=${String(!components.every(isOff))}
    aria-label=${name}
    title="Switch ${components.every(isOff) ? "on" : "off"}: ${name}"
    onClick=${() => toggle(components)}
  />`;

/** A switch, and how much its part matters. @param {{ part: Component }} props */
function PartSwitch({ part }) {
  const share = importance.value.get(keyOf(part)) ?? 0;
  return html`<div class="below">
    <${Switch} components=${[part]} name=${nameOf(part)} />
    <span
      class="importance"
      title=${`Without ${nameOf(part)}, ${percent(share)} of the right tokens become wrong`}
    >
      <i style=${{ width: `${100 * share}%` }} />
    </span>
  </div>`;
}

/** @param {{ head: Component }} props */
function Head({ head }) {
  const isSelected = keyOf(selected.value) === keyOf(head);
  return html`<div class=${"head-cell" + (isOff(head) ? " off" : "")}>
    <button
      type="button"
      class="head"
      tabindex=${isSelected ? 0 : -1}
      aria-pressed=${String(isSelected)}
      aria-label=${`${nameOf(head)}: show its links`}
      title=${nameOf(head)}
      onClick=${() => select(head)}
    >
      <${HeadMap} head=${head} />
    </button>
    <${PartSwitch} part=${head} />
  </div>`;
}

/** @param {{ block: import("../train/diagram/structure.js").Block, side: string }} props */
function Block({ block: { kind, layer, heads, title, component }, side }) {
  const components = heads
      ? Array.from({ length: heads }, (_, head) => ({ kind, layer, head }))
      : [{ kind: `${side} feed-forward`, layer, head: null }],
    isOpen = openBlock.value === component,
    isHere = keyOf({ ...selected.value, head: null }) === keyOf({ kind, layer, head: null }),
    open = () => {
      openBlock.value = isOpen ? "" : component;
      if (!isOpen && heads && !isHere) select(components[0]);
    };
  return html`<section
    class=${"block" + (components.every(isOff) ? " off" : "") + (isOpen ? " open" : "")}
    data-kind=${kind}
  >
    <div class="block-title">
      <button type="button" aria-expanded=${String(isOpen)} onClick=${open}>${title}</button>
      ${
        heads > 1
          ? html`<${Switch}
              components=${components}
              name=${`all ${heads} heads of ${title.toLowerCase()} ${layer + 1}`}
            />`
          : !heads && html`<${PartSwitch} part=${components[0]} />`
      }
    </div>
    ${
      heads > 0 &&
      html`<div class="heads">
        ${components.map((each) => html`<${Head} key=${keyOf(each)} head=${each} />`)}
      </div>`
    }
    ${
      isOpen &&
      html`<${OpenBlock}
        kind=${kind}
        component=${component}
        head=${heads && isHere ? selected.value : null}
      />`
    }
  </section>`;
}

/** @param {{ stack: StackInfo, title: string }} props */
export function Stack({ stack: { side, layers }, title }) {
  const kind = side === "encoder" && !isSingle ? "source positions" : "target positions",
    positions = parts.find((part) => part.kind === kind);
  return html`<div
    class="stack"
    data-side=${side}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) =>
      moveFocus(
        event,
        [...document.querySelectorAll(".head")].map((button) => ({ button })),
      )}
  >
    <h2>${title}</h2>
    ${layers
      .map(
        (blocks, layer) =>
          html`<div class="layer" key=${layer}>
            <h3>Layer ${layer + 1}</h3>
            ${blocks
              .map((block) => html`<${Block} key=${block.component} block=${block} side=${side} />`)
              .reverse()}
          </div>`,
      )
      .reverse()}
    <div class="embedding">
      <span>token${positions ? ` + ${nameOf(positions)}` : ""}</span>
      ${positions && html`<${PartSwitch} part=${positions} />`}
    </div>
  </div>`;
}

/** The attention of the selected head as links between tokens. */
export function Links() {
  const head = selected.value,
    { axes, output } = displayed.value,
    { weights, queries, keys } = weightsOf(head),
    outputRow = firstPredictedRow(head.kind, queries.length, { axes, probe: output }),
    name = nameOf(head),
    short = (/** @type {string[]} */ tokens) => tokens.map((token) => shorten(token, 4)),
    ref = useCanvas(
      (canvas) =>
        paintLinks(canvas, {
          keys: short(keys),
          queries: short(queries),
          weights: toThousandths(weights),
          output: outputRow !== null && {
            ...output,
            predicted: short(output.predicted),
            target: short(output.target),
          },
          outputRow: outputRow ?? 0,
          titles: [
            head.kind === "cross" ? "input" : "tokens",
            head.kind === "encoder" ? "reading" : "output so far",
            "output",
          ],
          color: cssVariable(isOff(head) ? "--pg-hatch" : `--pg-${head.kind}`),
          memoryColor: cssVariable("--pg-cross"),
          highlight: row.value,
          hasMemory: !isSingle,
          minHeight: 60 + 22 * Math.min(14, data.max_tokens), // the page stays where it is
        }),
      [displayed.value, head, row.value, isOff(head)],
    ),
    point = (/** @type {any} */ { offsetY, target: { layout } }) => {
      const at = queries.findIndex(
        (_, i) => Math.abs(offsetY - layout.y(i)) < layout.rowHeight / 2,
      );
      row.value = at < 0 ? null : at;
    };
  return html`<div class="links">
    <canvas
      ref=${ref}
      role="img"
      aria-label=${`Attention weights of ${name}`}
      onPointerMove=${point}
      onPointerDown=${point}
      onPointerLeave=${() => openBlock.value || (row.value = null)}
    />
    <p>
      <b>${name}</b>${
        isOff(head)
          ? " is off. It still reads, but what it reads is not used."
          : `: ${EXPLANATIONS[head.kind]} Thicker lines: it reads more. ` +
            "Point at a token for its lines alone."
      }
    </p>
  </div>`;
}
