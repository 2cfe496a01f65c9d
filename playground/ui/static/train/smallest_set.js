// A game: switch off as many parts of the model as possible while it still solves its task.
import { includes } from "../engine/parts.js";
import { Button, CopyButton } from "../shared/components/buttons.js";
import { formatCount, formatWholePercent } from "../shared/format.js";
import { store } from "../shared/store.js";
import { buildShareLink } from "../shared/share_link.js";
import { html } from "../vendor/preact.js";
import { MIN_RIGHT, search, searchKey, searchSmallestSet } from "./data/part_search.js";
import { switchable } from "./data/selection.js";
import { state } from "./state.js";

/** @import { Component } from "../engine/types.js" */

/**
 * Return a row of squares for each layer, black for what is off.
 * @param {Component[][]} blocks @param {Component[]} off
 */
function drawSquares(blocks, off) {
  const rows = /** @type {Map<string, string[]>} */ (new Map());
  for (const parts of blocks) {
    const side = parts[0].kind.startsWith("encoder") ? "encoder" : "decoder",
      row = `${side} ${Number(parts[0].layer) + 1}`,
      squares = parts.map((part) => (includes(off, part) ? "⬛" : "🟦")).join("");
    rows.set(row, [...(rows.get(row) ?? []), squares]);
  }
  return [...rows.values()].map((each) => each.join(" ")).join("\n");
}

/** What the user has reached, and what the search has. */
function describeResult() {
  const n = switchable.value.flat().length,
    { switchScore: score, displayedOff } = state,
    off = displayedOff.filter(({ layer }) => layer !== null), // position vectors do not count
    share = score && score.right / score.measured,
    { key, size } = search.value,
    isSearched = size >= 0 && key === searchKey();
  const right = share === null ? "" : `, ${formatWholePercent(share)} right`;
  return {
    isValid: share === null || share >= MIN_RIGHT,
    own: `${off.length} of ${n} parts off${right}`,
    reference: isSearched ? `${size} of ${n} off` : "",
  };
}

/** The result as a text: squares, and a link that restores the switches. */
async function buildResult() {
  const { own, reference } = describeResult();
  return [
    `Smallest set of “${store.modelName.value}”: ${own}` +
      (reference && ` (a search: ${reference})`),
    drawSquares(switchable.value, state.displayedOff),
    await buildShareLink(),
  ].join("\n");
}

export function SmallestSet() {
  const parts = switchable.value.flat(),
    { isValid, own, reference } = describeResult(),
    { progress } = search.value,
    least = formatWholePercent(MIN_RIGHT);
  return html`<p>
      How little does the model need? Switch off as many of its${" "}
      ${formatCount(parts.length, "part")} as you can, with at least ${least} of the unseen inputs
      right.
    </p>
    <p class="own-result"><b>You: ${own}</b> ${isValid ? "✓" : `✗ below ${least}`}</p>
    <p role="status">${reference && `A search: ${reference}`}</p>
    <div class="pg-buttons">
      <${Button}
        aria-disabled=${String(Boolean(progress))}
        onClick=${() => progress || searchSmallestSet(parts)}
      >
        ${progress ? `Searching, ${progress}` : "Run a search"}
      <//>
      <${CopyButton} label="Copy result" text=${buildResult} />
    </div>`;
}
