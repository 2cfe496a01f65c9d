// What is selected in the diagram: an attention type, one of its heads, and the open block. The
// address has them.
import { store } from "../../shared/store.js";
import { formatParts, parseParts } from "../../engine/parts.js";
import { batch, computed, effect, signal, untracked } from "../../vendor/preact.js";
import { buildStacks, partsOf } from "../../shared/diagram/structure.js";
import { state } from "../state.js";
import { runsInBrowser } from "./engine.js";
import { overlays, setOverlays } from "./overlays.js";
import { figure } from "./snapshots.js";

/** @import { Block, Stack } from "../../shared/diagram/structure.js" */

/** What a link or another tab selects, until its model is on display. */
const requested = signal(/** @type {Record<string, string | null> | null} */ (null));

/** What the diagram and the curves show, without what the first view of a model shows. */
function readSelection() {
  const { selectedKind: kind, selectedHead } = state,
    [layer, head] = selectedHead,
    blocks = stacks.value.flatMap(({ layers }) => layers.flat()),
    last = blocks.findLast((block) => block.kind === kind)?.layer,
    isFirst = last === undefined || (layer === last && !head);
  return {
    kind: kind === "cross" ? null : kind,
    head: isFirst ? null : `${layer + 1}.${head + 1}`,
    off: formatParts(state.switchedOff) || null,
    means: state.ablationMethod === "zero" ? null : state.ablationMethod,
  };
}

/** The selection and the overlaid runs in the address. */
export const trainView = {
  read: () => ({
    ...(requested.value ?? readSelection()),
    over: [...overlays.value.keys()].join() || null,
  }),
  apply(/** @type {URLSearchParams} */ params) {
    const names = ["kind", "head", "off", "means"];
    requested.value = Object.fromEntries(names.map((name) => [name, params.get(name)]));
    setOverlays((params.get("over") ?? "").split(",").filter((ref) => ref.startsWith("run:")));
  },
};

/** The model with its numbers of layers and heads. */
const shape = computed(() => {
  const { modelRef, info, pass } = figure.value ?? {},
    kinds = Object.entries(pass?.attention ?? {});
  return JSON.stringify([
    modelRef,
    info?.architecture,
    kinds.map(([kind, layers]) => [kind, layers.map((heads) => heads.length)]),
  ]);
});

/** The stacks of the displayed model. @type {{ value: Stack[] }} */
export const stacks = computed(() => {
  void shape.value;
  const current = figure.peek();
  return current ? buildStacks(current.info, current.pass.attention) : [];
});

/** What can be switched off, by block. */
export const switchable = computed(() =>
  stacks.value.flatMap(({ side, layers }) => layers.flat().map((block) => partsOf(block, side))),
);

/** The block that is open, if any. */
export const openBlock = computed(() =>
  stacks.value
    .flatMap(({ layers }) => layers.flat())
    .find((block) => block.component === state.selectedBlock),
);

/** Select a head of each model that is displayed, or what is requested for it. */
export function followModel() {
  effect(() => {
    if (stacks.value.length) untracked(() => batch(selectFirst));
  });
  effect(() => {
    if (requested.value && figure.value?.modelRef === store.model.value)
      untracked(() => batch(selectRequested));
  });
}

function selectFirst() {
  const { attention } = figure.value.pass,
    kinds = Object.keys(attention);
  if (kinds.length && !kinds.includes(state.selectedKind)) selectKind(kinds[0]);
  const layers = attention[state.selectedKind];
  state.selectedBlock = "";
  if (layers) state.selectedHead = [layers.length - 1, 0];
}

function selectRequested() {
  const { kind, head, off, means } = /** @type {Record<string, string>} */ (requested.value),
    { attention } = figure.value.pass,
    [layer, index] = (head ?? "").split(".").map((number) => Number(number) - 1);
  requested.value = null;
  selectKind(Object.hasOwn(attention, kind) ? kind : "cross");
  selectFirst();
  if (attention[state.selectedKind]?.[layer]?.[index]) state.selectedHead = [layer, index];
  state.ablationMethod = means === "mean" ? "mean" : "zero";
  if (off && runsInBrowser.value) state.switchedOff = parseParts(off);
}

/** @param {string} kind */
function selectKind(kind) {
  if (kind !== state.selectedKind) state.selectedBlock = "";
  state.selectedKind = kind;
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
