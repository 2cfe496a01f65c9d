// Find the bug: the correct model and a copy with a bug, trained side by side.
import { Button } from "../shared/components/buttons.js";
import { html, useMemo, useState } from "../vendor/preact.js";
import { DataTable } from "../shared/components/data_table.js";
import { Field, NumberField } from "../shared/components/form.js";
import { JobProgress } from "../shared/components/job_progress.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatCount, formatNumber, formatPercent } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { ATTENTION_KIND, ATTENTION_KINDS, TRAINING_LOSS } from "../shared/strings.js";
import { BugQuiz, feedback } from "./bug_quiz.js";
import { CLUES, countClues, DailyBug, DailyResult } from "./daily_bug.js";
import { Figures } from "./figures.js";
import { bugState, catalog, formatEstimate, LINKED_BUG, RANDOM_BUG, saveLocal } from "./state.js";

const CORRECT = "correct model";
const BUGGY = "buggy model";
const CORRECT_COLOR = 0;
const TEACHER_FORCED_COLOR = 1;
const BUGGY_COLOR = 4;
const MAX_SEED = 999_999_999;

const toRequest = ({ name, seed, steps, is_hidden = false }) => ({ name, seed, steps, is_hidden });
const withoutResult = (state) => ({ ...toRequest(state), day: state.day });

const bugJob = new Job({
  onSubmit(job) {
    bugState.value = { ...withoutResult(bugState.value), job };
    saveLocal("bug", bugState.value);
  },
});

/** Prepare another exercise; the active one is cancelled. */
export function openBug(request) {
  bugJob.reset();
  bugState.value = { ...toRequest(bugState.value), ...request };
  feedback.value = {};
  saveLocal("bug", bugState.value);
}

/** Show the result of the job at its end. */
async function showResult(running) {
  const result = await running;
  if (result) bugState.value = { ...bugState.value, result };
  else if (!isActive(bugJob.state.value)) saveLocal("bug", withoutResult(bugState.value));
}

function toPayload() {
  const { name: bug, ...rest } = toRequest(bugState.value);
  return { kind: "bug", request: { bug, ...rest } };
}

/** Follow what was active or done when the page was closed. */
export function resumeBug() {
  const { job } = bugState.value;
  if (job) showResult(bugJob.resume(store.owner.value, job, toPayload()));
}

function start() {
  if (isActive(bugJob.state.value)) return;
  feedback.value = {};
  showResult(bugJob.run(store.owner.value, toPayload()));
}

/** Return the figures of both models: the training loss and the exact match. */
export function buildCurves({ buggy, correct }, steps) {
  const loss = (label, color, { loss: ys }) => ({ label, color, xs: ys.map((_, i) => i + 1), ys }),
    pick = (rows, column) => rows.map((row) => row[column]);
  const scores = (label, color, { evaluations: rows }, column) => {
    return { label, color, xs: pick(rows, 0), ys: pick(rows, column) };
  };
  return [
    {
      kind: "curves",
      title: TRAINING_LOSS,
      metric: "loss",
      max: steps,
      series: [loss(CORRECT, CORRECT_COLOR, correct), loss(BUGGY, BUGGY_COLOR, buggy)],
    },
    {
      kind: "curves",
      title: "Exact match, free-running and teacher-forced",
      metric: "exact_match",
      max: steps,
      series: [
        scores(CORRECT + ", free-running", CORRECT_COLOR, correct, 2),
        scores(BUGGY + ", teacher-forced", TEACHER_FORCED_COLOR, buggy, 1),
        scores(BUGGY + ", free-running", BUGGY_COLOR, buggy, 2),
      ],
    },
  ].map((figure) => ({ ...figure, series: figure.series.filter((each) => each.xs.length) }));
}

const OBSERVATIONS = /** @type {[string, (copy: any) => string][]} */ ([
  ["mean loss of the last 10 steps", (copy) => formatNumber(copy.loss)],
  ["exact match, teacher-forced", (copy) => formatPercent(copy.teacher_forced)],
  ["exact match, free-running", (copy) => formatPercent(copy.free_running)],
  ["correct tokens, in any order", (copy) => formatPercent(copy.multiset_match)],
  ["mean probability of the predicted token", (copy) => formatPercent(copy.confidence)],
  ["output", (copy) => copy.output.map((each) => each[0]).join(" ")],
  [
    "number of layers with stored attention",
    ({ attention }) =>
      ATTENTION_KINDS.map(({ value }) => `${value} ${attention[value].length}`).join(", "),
  ],
]);

const describeSource = ({ source }) => source.slice(0, -1).join(" ");

/** Return the rows of the table that compares both models. */
export function buildObservations({ buggy, correct }) {
  const describe = (copy, format) => (copy.failure ? "–" : format(copy));
  return OBSERVATIONS.map(([name, format]) => ({
    name: name === "output" && !correct.failure ? `output for ${describeSource(correct)}` : name,
    correct: describe(correct, format),
    buggy: describe(buggy, format),
  }));
}

/** Return the attention maps of both models, a figure for each layer, averaged over heads. */
export function buildMaps({ buggy, correct }, kind) {
  const { source, target } = correct,
    rows = kind === "encoder" ? source : target,
    columns = kind === "decoder" ? target : source;
  return [
    [CORRECT, correct],
    [BUGGY, buggy],
  ].flatMap(([label, { attention }]) =>
    attention[kind].map((weights, layer, layers) => ({
      kind: "map",
      title: `${label}, layer ${layer + 1} of ${layers.length}`,
      rows,
      columns,
      weights,
      caption: "",
    })),
  );
}

function Attention({ result }) {
  const [kind, setKind] = useState("decoder"),
    figures = useMemo(() => buildMaps(result, kind), [result, kind]);
  return html`<section class="attention" aria-label="Attention">
    <h4>Attention on ${describeSource(result.correct)}, teacher-forced, mean over heads</h4>
    <p>Rows are queries, columns are keys.</p>
    <${SegmentedControl}
      label=${ATTENTION_KIND}
      options=${ATTENTION_KINDS}
      value=${kind}
      onChange=${setKind}
    />
    <${Figures} figures=${figures} isGrid />
  </section>`;
}

function Observations({ result, hasAttention }) {
  const { buggy, correct, n } = result,
    { failure } = buggy;
  const columns = [
    { key: "name", label: `on ${n} held-out sequences` },
    { key: "correct", label: CORRECT },
    ...(failure ? [] : [{ key: "buggy", label: BUGGY }]),
  ].map((column) => ({ ...column, isSortable: false }));
  return html`<div class="observations">
      ${
        failure &&
        html`<pre class="traceback" tabindex="0">
${`Buggy model, after ${formatCount(failure.step, "step")}:\n\n${failure.lines.join("\n")}`}</pre>`
      }
      <${DataTable}
        class="sheet"
        caption="Correct and buggy model"
        columns=${columns}
        rows=${buildObservations(result)}
      />
    </div>
    ${hasAttention && !failure && !correct.failure && html`<${Attention} result=${result} />`}`;
}

/** Describe how long the training of both models takes. */
export function describeDuration(steps) {
  const { bug_seconds: defaultSeconds, steps: defaultSteps } = catalog.value,
    seconds = (defaultSeconds * steps) / defaultSteps;
  return `Training takes ${formatEstimate({ seconds })}.`;
}

function BugForm({ isDisabled, hasResult }) {
  const { day, name, seed, steps, is_hidden: isHidden } = bugState.value;
  const options = [
    ...(isHidden ? [{ value: LINKED_BUG, label: "Bug of a link (name hidden)" }] : []),
    { value: RANDOM_BUG, label: "Random bug (name hidden)" },
    ...catalog.value.bugs.map((bug) => ({ value: bug.name, label: bug.title })),
  ];
  return html`<details open=${!day}>
      <summary>Another bug</summary>
      <div class="pg-row options">
        <${Field}
          class="which"
          field=${{ name: "bug", label: "Bug", type: "select", options }}
          value=${isHidden ? LINKED_BUG : name}
          onInput=${(value) => value !== LINKED_BUG && openBug({ name: value, is_hidden: false })}
        />
        <${NumberField}
          class="seed"
          label="Seed"
          value=${seed}
          min=${0}
          max=${MAX_SEED}
          isInteger
          onChange=${(value) => value !== seed && openBug({ seed: value })}
        />
      </div>
    </details>
    <p class="pg-buttons">
      <${Button} class="primary begin-bug" disabled=${isDisabled} onClick=${start}>
        ${hasResult ? "Train both again" : "Train both"}
      <//>
      ${!hasResult && html`<span class="pg-hint duration">${describeDuration(steps)}</span>`}
    </p>`;
}

function Introduction() {
  return html`<p>
      One line of a small model is wrong; most of these bugs occur in tutorials. The buggy and the
      correct model train with the same seed and batches.
    </p>
    <p>
      In free-running generation, the decoder reads its own output. In teacher-forced generation, it
      reads the correct tokens.
    </p>
    <p class="instruction">
      ${
        bugState.value.day
          ? `Name the bug with as few of the ${CLUES.length} clues as you can, then find its line.`
          : "Compare loss, output and attention, name the bug, then find the line."
      }
    </p>`;
}

export function BugExercise() {
  const progress = bugJob.state.value,
    isRunning = isActive(progress),
    { job, result: lastResult } = bugState.value,
    result = isRunning ? null : lastResult,
    { curves } = result ?? progress.partial,
    steps = result?.steps ?? progress.total,
    { failure } = result?.buggy ?? {},
    nClues = countClues(),
    figures = useMemo(() => (curves ? buildCurves(curves, steps) : []), [curves]);
  return html`<div class="exercise">
      <${DailyBug} open=${openBug} />
      <${Introduction} />
      <${BugForm} isDisabled=${isRunning} hasResult=${Boolean(result)} />
      <${JobProgress} job=${bugJob} onRetry=${start} />
    </div>
    <div class="finding">
      ${
        figures.length
          ? html`${
                failure &&
                html`<p class="pg-note">
                  The buggy model stopped with an error${" "}
                  ${
                    failure.step
                      ? `after ${formatCount(failure.step, "step")}, where its curves end.`
                      : "in its first step, so it has no curves."
                  }
                </p>`
              } <${Figures} figures=${figures.slice(0, nClues)} />`
          : html`<p class="pg-hint pg-empty empty">
              The curves of both models appear here: the training loss and the exact match.
            </p>`
      }
    </div>
    ${
      result &&
      html`${
          nClues > (failure ? 1 : 2) &&
          html`<${Observations} key=${job} result=${result} hasAttention=${nClues > 3} />`
        } <${BugQuiz} key=${job + "-quiz"} result=${result} /> <${DailyResult} />`
    }`;
}
