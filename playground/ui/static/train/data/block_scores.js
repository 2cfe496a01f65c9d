// How a query of the open block gets its attention weights. Who computed the picture computes the
// numbers: the server or the engine.
import { request } from "../../shared/api.js";
import { formatToken } from "../../shared/format.js";
import { Resource } from "../../shared/resource.js";
import { store } from "../../shared/store.js";
import { computed } from "../../vendor/preact.js";
import { isDue, isTabOpen, state } from "../state.js";
import { scoresLocally } from "./engine.js";
import { openBlock } from "./selection.js";
import { figure } from "./snapshots.js";

/** The query whose numbers the open block shows; null without a block of attention. */
const openQuery = computed(() => {
  const current = figure.value;
  if (!current || !openBlock.value?.heads) return null;
  const { pass, info } = current,
    [layer, head] = state.selectedHead,
    axes = pass.axes[state.selectedKind].map((/** @type {string[]} */ names) =>
      names.map(formatToken),
    ),
    row = Math.min(state.selectedQuery, axes[0].length - 1),
    text = state.typedPass ? store.sequence.value : info.default_input,
    options = { kind: state.selectedKind, layer, head, query: row },
    selection = JSON.stringify([state.modelRef, text, options]);
  return { selection, pass, step: pass.step, text, options, axes };
});

async function load({ pass, step, text, options, axes }) {
  if (pass.isFromEngine) {
    const scores = await scoresLocally(options, pass.number);
    return scores ? { ...scores, axes, options } : { error: "The input has changed." };
  }
  const atStep = state.viewedStep === null ? {} : { step: state.viewedStep },
    payload = { owner: store.owner.value, subject: state.modelRef, view: "attention-scores" },
    scores = await request("inspect/view", { ...payload, text, options, ...atStep });
  if (!scores.error && scores.step !== step && state.viewedStep !== null)
    return { error: "A recording has no query and key vectors of earlier steps." };
  return { ...scores, axes, options };
}

/** The numbers of the open block, with the tokens of its axes. */
export const blockScores = new Resource(load);
let requested = /** @type {any} */ (null);

/** Request the numbers of the open block if they are not those of the displayed pass. */
export function refreshScores() {
  const query = openQuery.value;
  if (!query) {
    requested = null;
    blockScores.clear();
    return;
  }
  const isSame = query.selection === requested?.selection,
    { isFromEngine } = query.pass,
    isKnown = isFromEngine ? query.pass === requested?.pass : query.step === requested?.step;
  if (!isTabOpen.value || (isSame && isKnown)) return;
  if (isSame && !isFromEngine && !isDue("scores")) return;
  requested = query;
  blockScores.load(query);
}
