// The diagram of the open model, on the typed sequence or on the probe. Every number is measured.
import { formatCount } from "../shared/format.js";
import { store } from "../shared/store.js";
import { html } from "../vendor/preact.js";
import { includes, nameOf } from "../engine/parts.js";
import { hasExamples, isLocal } from "./data/local_model.js";
import { openBlock, selectHead, stacks, toggleBlock } from "./data/selection.js";
import { figure, toggleParts } from "./data/snapshots.js";
import { Diagram } from "./diagram/diagram.js";
import { BlockScores } from "./diagram/scores.js";
import {
  describeHead,
  describeWeights,
  firstPredictedRow,
  formatThousandths,
  KIND_TITLES,
  summarizeHead,
} from "./diagram/structure.js";
import { SwitchControls } from "./diagram/switches.js";
import { NOTHING_OFF, state } from "./state.js";

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
function columnTitles({ axes }, kind) {
  if (!axes.cross && axes[kind]) return ["keys", "queries"];
  if (kind === "encoder") return ["source", "source"];
  return kind === "decoder" ? ["input", "input"] : ["source", "target"];
}

/** What the links show: the weights of the selected head, and the predicted tokens. */
function buildLinks(pass) {
  const kind = state.selectedKind,
    [layer, head] = state.selectedHead,
    [queries, keys] = pass.axes[kind] || [pass.probe?.target ?? [], pass.source],
    outputRow = firstPredictedRow(kind, queries.length, pass);
  return {
    keys,
    queries,
    weights: pass.attention[kind]?.[layer]?.[head] || null,
    output: outputRow === null ? null : pass.probe,
    outputRow: outputRow ?? 0,
    titles: columnTitles(pass, kind),
    highlight: state.hoverRow ?? state.hoverCell?.[0] ?? null,
    hasMemory: Boolean(pass.axes.cross),
  };
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

function describeSelection(pass) {
  const kind = state.selectedKind,
    [layer, head] = state.selectedHead,
    weights = pass.attention[kind]?.[layer]?.[head];
  if (!weights) return "This model has no attention; it passes the input on as one vector.";
  const name = describeHead(kind, layer, head, stacks.value.length === 1);
  if (SWITCHES.isOff({ kind, layer, head }))
    return name + " is off. It still reads, but what it reads is not used.";
  const [queries, keys] = pass.axes[kind],
    { entropy, maxWeight } = summarizeHead(weights, queries.length, keys.length);
  return (
    name +
    ". Thicker lines: larger attention weights. Mean of the largest weight per query: " +
    maxWeight.toFixed(2) +
    "; entropy " +
    entropy.toFixed(1) +
    " bits."
  );
}

function describeBlock(block, { info, pass }) {
  const parameters = info.component_parameters?.[block.component],
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

/** The values of a row are spoken, but not the numbers that change during training. */
function Note({ current: { pass, info } }) {
  const row = state.hoverRow,
    isRow = row !== null && Boolean(pass.axes[state.selectedKind]),
    block = openBlock.value,
    text = isRow
      ? describeRow(pass, row)
      : block
        ? describeBlock(block, { pass, info })
        : describeSelection(pass);
  return html`<p class="diagram-note pg-hint" aria-live=${isRow ? "polite" : "off"}>${text}</p>`;
}

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

/** @type {import("./diagram/switches.js").Switches} */
const SWITCHES = {
  isOff: (part) => includes(state.displayedOff, part),
  toggle: toggleParts,
  nameOf: (part) => nameOf(part, stacks.value.length === 1),
};

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
  />`;
}

/** The picture of the document, until the page has the model. */
const firstPicture = document.querySelector("html:not(.without-first-view) .first-picture");
const FirstPicture = () => html`<div ref=${(box) => box?.append(firstPicture)}></div>`;

/** A double click or Enter on the selected head opens it in Inspect. */
const openIfHead = (event) => event.target.closest(".head[aria-pressed=true]") && openInInspect();

export function ModelDiagram() {
  const current = figure.value,
    { selectedKind: kind, selectedHead, selectedBlock: block, hoverRow } = state,
    [layer, head] = selectedHead;
  return html`<div class="diagram-box">
      <p class="no-figures pg-hint">
        The model, its attention and its predictions appear after the first training step.
      </p>
      ${!current && firstPicture && state.status === "opening" && html`<${FirstPicture} />`}
      <figure
        class="diagram"
        onDblClick=${openIfHead}
        onKeyDown=${(event) => event.key === "Enter" && openIfHead(event)}
      >
        <${Diagram}
          stacks=${stacks.value}
          pass=${current?.pass}
          selected=${{ kind, layer, head, block }}
          links=${current && buildLinks(current.pass)}
          label=${current && describePass(current.pass)}
          row=${hoverRow}
          onSelect=${selectHead}
          onBlock=${toggleBlock}
          onRow=${(row) => (state.hoverRow = row)}
          switches=${isLocal.value ? SWITCHES : undefined}
          controls=${isLocal.value && html`<${Controls} />`}
        />
      </figure>
    </div>
    ${current ? html`<${Note} current=${current} />` : html`<p class="diagram-note pg-hint"></p>`}
    <${BlockScores} />`;
}
