// The diagram of the open model, on the typed sequence or on the probe. Every number is measured.
import { store } from "../shared/store.js";
import { PART_NOT_LOADED } from "../shared/strings.js";
import { html, signal, useSignalEffect } from "../vendor/preact.js";
import { includes, nameOf } from "../engine/parts.js";
import { hasExamples, runsInBrowser } from "./data/engine.js";
import { blockScores, refreshScores } from "./data/block_scores.js";
import { openBlock, selectHead, stacks, toggleBlock } from "./data/selection.js";
import { figure, toggleParts } from "./data/snapshots.js";
import { describePass, DiagramNote } from "../shared/diagram/describe.js";
import { Diagram } from "../shared/diagram/diagram.js";
import { OpenBlock } from "../shared/diagram/open_block.js";
import { SwitchControls } from "../shared/diagram/switches.js";
import { NOTHING_OFF, state } from "./state.js";

function openInInspect() {
  store.open("inspect", {
    model: state.modelRef,
    step: state.viewedStep,
    input: state.typedPass ? store.sequence.value : undefined,
    section: "attention",
    options: JSON.stringify({
      kind: state.selectedKind,
      layer: state.selectedHead[0],
      head: state.selectedHead[1],
      mode: "teacher-forced", // as in the diagram
    }),
  });
}

/** @type {import("../shared/diagram/switches.js").Switches} */
const SWITCHES = {
  isOff: (part) => includes(state.displayedOff, part),
  toggle: toggleParts,
  nameOf: (part) => nameOf(part, stacks.value.length === 1),
};

const SmallestSet = signal(/** @type {any} */ (null));

const NotLoaded = () => PART_NOT_LOADED;

/** The game loads when the user opens it. */
const Game = () =>
  html`<details
    class="smallest-set"
    onToggle=${async () => {
      const load = () => import("./smallest_set.js");
      SmallestSet.value ??= (await load().catch(() => null))?.SmallestSet ?? NotLoaded;
    }}
  >
    <summary>Game: the smallest set</summary>
    ${SmallestSet.value && html`<${SmallestSet.value} />`}
  </details>`;

function Controls() {
  const { prediction, target, off } = state.prediction ?? {},
    isKnown = off === state.displayedOff;
  return html`<${SwitchControls}
      off=${state.displayedOff}
      nameOf=${SWITCHES.nameOf}
      isRight=${isKnown ? prediction.join("\n") === target?.join("\n") : null}
      score=${state.switchScore}
      method=${state.ablationMethod}
      hasExamples=${hasExamples.value}
      onMethod=${(method) => (state.ablationMethod = method)}
      onReset=${() => (state.switchedOff = NOTHING_OFF)}
    />
    ${hasExamples.value && html`<${Game} />`}`;
}

/** The picture of the document, until the page has the model. */
const firstPicture = document.querySelector("html:not(.without-first-view) .first-picture");
const FirstPicture = () => html`<div ref=${(box) => box?.append(firstPicture)}></div>`;

/** A double click or Enter on the selected head opens it in Inspect. */
const openIfHead = (event) => event.target.closest(".head[aria-pressed=true]") && openInInspect();

/** The selected head, and the query that the user points at or that the open block explains. */
function readSelection() {
  const { selectedKind: kind, selectedHead, hoverRow } = state,
    [layer, head] = selectedHead,
    query = openBlock.value?.heads ? state.selectedQuery : null;
  return { selected: { kind, layer, head }, row: hoverRow ?? query };
}

function Details() {
  useSignalEffect(refreshScores);
  const { info, pass } = figure.value,
    block = /** @type {import("../shared/diagram/structure.js").Block} */ (openBlock.value);
  return html`<${OpenBlock}
    block=${block}
    contribution=${pass.contributions?.[block.component]}
    parameters=${info.component_parameters?.[block.component]}
    scores=${blockScores.data.value}
    note=${blockScores.error.value}
    onQuery=${(query) => (state.selectedQuery = query)}
  />`;
}

export function ModelDiagram() {
  const { pass } = figure.value ?? {},
    { selected, row } = readSelection();
  return html`<div class="diagram-box">
      <p class="no-figures pg-hint">
        The model, its attention and its predictions appear after the first training step.
      </p>
      ${!pass && firstPicture && state.status === "opening" && html`<${FirstPicture} />`}
      <figure
        class="diagram"
        onDblClick=${openIfHead}
        onKeyDown=${(event) => event.key === "Enter" && openIfHead(event)}
      >
        <${Diagram}
          ...${{ pass, selected, row }}
          stacks=${stacks.value}
          label=${pass && describePass(pass)}
          open=${openBlock.value?.component ?? ""}
          details=${openBlock.value && html`<${Details} />`}
          onSelect=${selectHead}
          onBlock=${toggleBlock}
          onRow=${(row) => (state.hoverRow = row)}
          switches=${runsInBrowser.value ? SWITCHES : undefined}
          parts=${state.parts}
          importance=${state.importance}
          controls=${runsInBrowser.value && html`<${Controls} />`}
        />
      </figure>
    </div>
    <${DiagramNote}
      ...${{ pass, selected }}
      row=${state.hoverRow}
      isOff=${SWITCHES.isOff(selected)}
    />`;
}
