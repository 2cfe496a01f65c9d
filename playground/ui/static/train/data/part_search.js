// The search for the parts that a model needs, with which the user competes.
import { signal } from "../../vendor/preact.js";
import { state } from "../state.js";
import { local, useWeights } from "./engine.js";

/** @import { Component } from "../../engine/types.js" */

export const MIN_RIGHT = 0.9; // of unseen inputs, with parts off
const SAMPLE = 64; // examples during the search; the result holds for all
const NO_SEARCH = { key: "", progress: "", size: -1 };

/** The last search: how many parts it switched off, -1 until it ends, and its progress. */
export const search = signal(NO_SEARCH);

/** What a search is for: weights, and what takes the place of outputs. */
export const searchKey = () => JSON.stringify([state.modelRef, local.current.key, method()]);
const method = () => state.ablationMethod;

/** Switch off part after part, those that matter least alone first. @param {Component[]} parts */
export async function searchSmallestSet(parts) {
  search.value = { ...NO_SEARCH, progress: "loading" };
  const examples = await useWeights(async ({ description }) => description.examples).catch(
    () => null,
  );
  if (!examples?.length) return (search.value = NO_SEARCH);
  const key = searchKey(),
    nAll = examples.length,
    nSample = Math.min(SAMPLE, nAll);
  /** Return the count without parts; null if too few are right, or the search is over. */
  const count = (/** @type {Component[]} */ off, /** @type {number} */ n, min = MIN_RIGHT) =>
    local.count(n, off, method(), (right, measured) => {
      const isPossible = right + n - measured >= Math.ceil(min * n);
      return isPossible && key === searchKey();
    });
  const alone = [],
    off = [];
  let done = 0;
  const show = () => {
    search.value = { key, size: -1, progress: `${done++} of ${2 * parts.length}` };
  };
  for (const part of parts) {
    show();
    alone.push({ part, loss: -((await count([part], nSample, 0))?.logProbability ?? 0) });
  }
  for (const { part } of alone.sort((a, b) => a.loss - b.loss)) {
    show();
    if (await count([...off, part], nSample)) off.push(part);
  }
  while (off.length && key === searchKey() && !(await count(off, nAll))) off.pop();
  search.value = key === searchKey() ? { key, progress: "", size: off.length } : NO_SEARCH;
}
