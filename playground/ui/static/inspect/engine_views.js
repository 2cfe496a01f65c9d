// Answers of the engine in the form of views (inspection/views).
/** @import { Component } from "../engine/types.js" */

/**
 * Return the attention of one kind, or of the first one if the model lacks it: thousandths.
 * @param {any} answer of `inspect` @param {string} preferred the kind
 */
export function attentionView({ attention, axes, prediction, target, note }, preferred) {
  const kinds = Object.keys(attention),
    kind = kinds.includes(preferred) ? preferred : kinds[0],
    [rows, columns] = /** @type {string[][]} */ (axes[kind]),
    layers = /** @type {number[][][]} */ (attention[kind]);
  return {
    ...{ prediction, target, note, kind, kinds, rows, columns },
    views: kinds.length > 1 ? undefined : ["attention"],
    layers: layers.length,
    heads: layers[0].length,
    weights: layers,
  };
}

/** @typedef {"single" | "groups" | "keep"} AblationSet */

const KIND_NAMES = /** @type {Record<string, string>} */ ({
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
  cross: "cross-attention",
});

/** @param {Component} component */
const nameOf = ({ kind, layer, head }) =>
  (KIND_NAMES[kind] ?? kind) +
  (layer === null ? "" : `, layer ${layer + 1}`) +
  (head === null ? "" : `, head ${head + 1}`);

/**
 * Return the groups of components by name: all heads of one kind in one layer, all heads of one
 * kind, and all feed-forward networks of one side.
 * @param {Component[]} components
 */
function groupComponents(components) {
  const nLayers = 1 + Math.max(...components.map(({ layer }) => layer ?? 0)),
    groups = /** @type {Record<string, Component[]>} */ ({}),
    add = (/** @type {string} */ name, /** @type {Component} */ part) =>
      (groups[name] ??= []).push(part);
  for (const part of components) {
    const { kind, layer, head } = part;
    if (layer === null) continue;
    if (head !== null && nLayers > 1) add(nameOf({ kind, layer, head: null }), part);
    if (nLayers > 1) add(`${nameOf({ kind, layer: null, head: null })}, every layer`, part);
    else if (head !== null) add(nameOf({ kind, layer: null, head: null }), part);
  }
  return Object.entries(groups);
}

/**
 * Return the name of each ablation of a set, and what it switches off. Position vectors are the
 * same on all sequences, so resampling does not change them.
 * @param {Component[]} all @param {AblationSet} set @param {string} method
 */
export function listAblations(all, set, method) {
  const components = all.filter(({ layer }) => layer !== null || method !== "resample"),
    single = components.map(
      (part) => /** @type {[string, Component[]]} */ ([nameOf(part), [part]]),
    ),
    groups = groupComponents(components),
    isHead = (/** @type {Component} */ { head }) => head !== null,
    remaining = [...single, ...groups].filter(([, parts]) => isHead(parts[0]));
  if (set !== "keep")
    return (set === "single" ? single : groups).map(([name, off]) => ({ name, off }));
  return remaining.map(([name, parts]) => ({
    name,
    off: components.filter((part) => isHead(part) && !parts.includes(part)),
  }));
}

/** The name of the heads that have a negligible effect one at a time. @param {number} n */
export const nameSpared = (n) => `all ${n} heads that cost less than 2 points each`;
