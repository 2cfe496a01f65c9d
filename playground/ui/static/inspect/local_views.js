// What the page computes of the displayed weights itself, in the form of the server's views.
import { LocalModel, unsupported } from "../shared/local_model.js";
import { store } from "../shared/store.js";
import { attentionView, listAblations, nameSpared } from "./engine_views.js";
import { openSection } from "./state.js";
/** @import { Component } from "../engine/types.js" */
/** @import { Loaded } from "../shared/local_model.js" */
/** @import { Method } from "../shared/browser_model.js" */
/** @typedef {{ method: Method, set: import("./engine_views.js").AblationSet }} TableOptions */

const MAX_WORK = 1e11; // multiply-adds of a table: half a minute
const NEGLIGIBLE_DROP = 0.02; // of exact match, as in inspection/ablation.py

// Two Workers: a table has the same weights from its first to its last row.
const answers = new LocalModel(),
  tables = new LocalModel();

/** Return whether the model has weights at earlier steps. A checkpoint has only its last ones. */
export const hasSteps = () => /^(run|watch):/.test(store.model.value ?? "");

/** Whether the page runs the open model. */
export const isLocal = () =>
  typeof store.weightSeries.value === "number" && unsupported.value !== store.model.value;

function displayedWeights() {
  const { model, step, latestStep, weightSteps, weightSeries } = store,
    displayed = hasSteps() ? (step.value ?? weightSteps.value.at(-1)) : latestStep.value;
  if (!isLocal() || displayed === undefined) return null;
  return { subject: model.value ?? "", step: displayed, series_id: Number(weightSeries.value) };
}

/**
 * Load weights and compute with them. Return null where the server must do that.
 * @param {LocalModel} local @param {(loaded: Loaded) => Promise<any>} compute
 */
async function computeWith(local, compute) {
  const weights = displayedWeights();
  return weights && local.use(weights, compute);
}

/**
 * Return the output for the input and its attention; null where the server must answer: before the
 * first key, but for an ablation, and for what is no input of the model.
 * @param {{ kind?: string, mode?: string }} options
 */
export async function answerLocally({ kind = "", mode }) {
  const isTouched = store.input.value !== null || openSection.value === "ablation";
  if (!isTouched && !answers.has(displayedWeights())) return null;
  return computeWith(answers, async ({ step, description }) => {
    const isTeacherForced = mode === "teacher-forced",
      answer = await answers.call("inspect", store.sequence.value, isTeacherForced);
    return (
      answer && { ...attentionView(answer, kind), architecture: description.architecture, step }
    );
  });
}

/**
 * Return the table of ablations on the held-out examples; null where the server must measure it.
 * @param {TableOptions} options
 * @param {(progress: { total: number, data: any }) => void} onProgress receives the rows so far
 */
export const measureLocally = ({ method, set }, onProgress) =>
  computeWith(tables, async ({ step, description, nParameters, components }) => {
    const ablations = listAblations(components, set, method),
      { lengths, max_tokens: maxTokens, examples } = description,
      work = nParameters * (lengths[1] + maxTokens) * examples.length * ablations.length;
    if (!examples.length || work > MAX_WORK) return null;
    const n = examples.length,
      { key } = tables.current,
      rows = /** @type {any[]} */ ([]);
    const score = async (/** @type {Component[]} */ off) => {
      const { right = 0, logProbability = 0 } =
        (await tables.count(n, off, method, undefined, n)) ?? {};
      return { exact_match: right / n, log_probability: logProbability / n };
    };
    const baseline = await score([]),
      table = { method, set, step, baseline, rows, sequences: n, lengths, isLocal: true };
    for (const ablation of ablations) {
      if (key !== tables.current.key) return { error: "the step has changed; measure again" };
      onProgress({ total: ablations.length, data: { ...table, rows: [...rows] } });
      rows.push({ ...ablation, ...(await score(ablation.off)) });
    }
    const spared = rows.filter(
      ({ off, exact_match: right }) =>
        off[0].head !== null && baseline.exact_match - right < NEGLIGIBLE_DROP,
    );
    if (set === "single" && spared.length > 1) {
      const off = spared.flatMap((row) => row.off);
      rows.push({ name: nameSpared(spared.length), off, ...(await score(off)) });
    }
    const sign = set === "keep" ? -1 : 1; // the largest effect is first, or the smallest
    rows.sort((a, b) => sign * (a.log_probability - b.log_probability));
    return table;
  });
