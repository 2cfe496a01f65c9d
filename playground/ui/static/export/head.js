// The attention of one head: its weights, and the names of its rows and columns.
import { html } from "../vendor/preact.js";
import { useCanvas } from "../shared/components/use_canvas.js";
import { paintHeadMap } from "../train/diagram/head_map.js";
import { firstPredictedRow } from "../train/diagram/structure.js";
import { displayed } from "./state.js";
/** @import { Component } from "../engine/forward_pass.js" */

/** @param {Float32Array} weights @param {number} [largest] that becomes 1000 */
export const toThousandths = (weights, largest = 1) =>
  Array.from(weights, (weight) => Math.round((1000 * weight) / largest));

/** @param {string} token @param {number} most characters */
export function shorten(token, most) {
  const characters = [...token];
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : token;
}

/**
 * Return the weights (QM) of a head, the tokens of its rows and columns, and the row that predicts
 * the first token of the output; null if none does.
 * @param {Component} head
 */
export function weightsOf({ kind, layer, head }) {
  const { pass, axes, output } = displayed.value,
    [queries, keys] = axes[kind],
    size = queries.length * keys.length,
    from = Number(head) * size;
  return {
    weights: pass.attention[kind][Number(layer)].subarray(from, from + size),
    queries,
    keys,
    outputRow: firstPredictedRow(kind, queries.length, { axes, probe: output }),
  };
}

/** The map of a head, without names. @param {{ head: Component }} props */
export function HeadMap({ head }) {
  const { weights, queries, keys } = weightsOf(head),
    squares = toThousandths(weights, Math.max(...weights)),
    ref = useCanvas(
      (canvas) =>
        paintHeadMap(canvas, squares, queries.length, keys.length, head.kind === "decoder"),
      [squares.join()],
    );
  return html`<canvas ref=${ref} />`;
}
