// What is selected in the diagram: an attention type, one of its heads, and the open block. A link
// may select them, and the curve, for the model that it names.
import { takeQueryParam } from "../../shared/links.js";
import { batch, computed, effect, untracked } from "../../vendor/preact.js";
import { buildStacks } from "../diagram/structure.js";
import { embeddedView, METRICS, state } from "../state.js";
import { figure } from "./snapshots.js";

/** @import { Block, Stack } from "../diagram/structure.js" */

const linkParams = new URLSearchParams(location.search);
if (!embeddedView) for (const name of ["kind", "head", "curve", "log"]) takeQueryParam(name);
let isLinkPending = ["watch", "model"].some((name) => linkParams.has(name));

/** The model with its numbers of layers and heads. */
const shape = computed(() => {
  const { modelRef, info, pass } = figure.value ?? {},
    kinds = Object.entries(pass?.attention ?? {});
  return JSON.stringify([
    modelRef,
    info?.architecture,
    kinds.map(([kind, layers]) => [kind, layers.map((/** @type {any} */ heads) => heads.length)]),
  ]);
});

/** The stacks of the displayed model. @type {{ value: Stack[] }} */
export const stacks = computed(() => {
  void shape.value;
  const current = figure.peek();
  return current ? buildStacks(current.info, current.pass.attention) : [];
});

/** The block that is open, if any. */
export const openBlock = computed(() =>
  stacks.value
    .flatMap(({ layers }) => layers.flat())
    .find((block) => block.component === state.selectedBlock),
);

/** Select a head of each model that is displayed. */
export const followModel = () =>
  effect(() => {
    if (stacks.value.length) untracked(() => batch(() => selectFirst(figure.value)));
  });

/** @param {any} figure */
function selectFirst({ info: { axes }, pass: { attention } }) {
  if (isLinkPending && /^(watch|checkpoint):/.test(state.modelRef)) applyLink(axes);
  const kinds = Object.keys(attention);
  if (kinds.length && !kinds.includes(state.selectedKind)) selectKind(kinds[0]);
  const layers = attention[state.selectedKind];
  state.selectedBlock = "";
  if (layers) state.selectedHead = linkedHead(layers) ?? [layers.length - 1, 0];
}

/** @param {object} axes */
function applyLink(axes) {
  const kind = linkParams.get("kind") ?? "",
    curve = linkParams.get("curve") ?? "";
  isLinkPending = false;
  if (Object.hasOwn(axes, kind)) selectKind(kind);
  if (Object.hasOwn(METRICS, curve)) state.selectedMetric = curve;
  if (linkParams.get("log") === "no") state.isLog = false;
}

/**
 * Return the head of the link while its model is displayed; null if the model lacks this head.
 * @param {any[][]} layers
 */
function linkedHead(layers) {
  const match =
    state.modelRef === state.linkedModel &&
    /^(\d{1,2})\.(\d{1,2})$/.exec(linkParams.get("head") || "");
  if (!match) return null;
  const [layer, head] = [Number(match[1]) - 1, Number(match[2]) - 1];
  return layers[layer]?.[head] ? [layer, head] : null;
}

/** @param {string} kind */
export function selectKind(kind) {
  if (kind !== state.selectedKind) state.selectedBlock = "";
  state.selectedKind = kind;
  state.hoverCell = null;
}

/**
 * Select a head. An open block stays open if it has this head.
 * @param {string} kind
 * @param {number} layer
 * @param {number} head
 */
export function selectHead(kind, layer, head) {
  const open = openBlock.value;
  batch(() => {
    selectKind(kind);
    state.selectedHead = [layer, head];
    state.selectedBlock = open?.kind === kind && open.layer === layer ? open.component : "";
  });
}

/** Open a block, or close it. The links are those of a head of it. @param {Block} block */
export function toggleBlock({ component, kind, layer, heads }) {
  const isOpen = state.selectedBlock === component,
    [, head] = state.selectedHead;
  batch(() => {
    if (!isOpen && heads) selectHead(kind, layer, head < heads ? head : 0);
    state.selectedBlock = isOpen ? "" : component;
  });
}
