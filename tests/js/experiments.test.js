import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, mock, test } from "node:test";

import { enter, settle } from "./support/dom.js";
import {
  box,
  button,
  click,
  mount,
  responses,
  sent,
  serve,
  text,
  waitFor,
} from "./support/page.js";
import {
  describeAnswer,
  describePreset,
  describeStatus,
  Experiments,
  listActions,
  Presets,
} from "../../playground/ui/static/compare/experiments/experiments.js";
import {
  NewExperiment,
  describePlan,
  form,
  listFields,
  placeError,
  plan,
  toRequest,
  toValues,
} from "../../playground/ui/static/compare/experiments/new_experiment.js";
import {
  applyPoll,
  claims,
  details,
  experiments,
  formatEstimate,
  labelSettings,
  lines,
  loadOutcomes,
  openExperiment,
  openId,
  outcomeKey,
  outcomes,
  presets,
  settings,
  STORED_PREFIX,
  toggleVariant,
  variants,
} from "../../playground/ui/static/compare/experiments/state.js";
import {
  Replications,
  buildClaimSeries,
  describeResult,
  describeSettings,
  describeVerdict,
} from "../../playground/ui/static/compare/experiments/replications.js";
import {
  buildLengthSeries,
  buildSeries,
} from "../../playground/ui/static/compare/experiments/result_charts.js";
import {
  describeMeasurement,
  describeRun,
  describeRuns,
  formatRange,
  formatStepsTo,
  Results,
  settingsLabel,
} from "../../playground/ui/static/compare/experiments/results.js";
import {
  describePrice,
  describeShards,
  isPlaceReady,
  listPlaceFields,
  places,
  toJobs,
} from "../../playground/ui/static/compare/experiments/run_on.js";
import { formatPercent } from "../../playground/ui/static/shared/format.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const spread = (median, low = median, high = median) => ({ median, low, high });
const CURVE = { steps: [10, 20], median: [0.2, 0.5], low: [0.1, 0.4], high: [0.3, 0.6] };
const VARIANT = {
  label: "norm pre",
  short: "pre",
  n: 1,
  planned: 2,
  diverged: 0,
  changed: 0,
  exact_match: spread(0.582, 0.5, 0.6),
  steps_to: { ...spread(null), reached: 0, n: 1 },
  steps: 20,
  seconds: spread(3),
  curve: CURVE,
  loss: CURVE,
  live: [{ seed: 1, curve: [[10, 0.1]], loss: [[10, 2]] }],
  eval_size: 256,
  seeds: [
    { seed: 0, run: "run:0", done: true, n: 2000 },
    { seed: 1, run: "run:1", done: false, n: null },
  ],
};
const ROW = {
  id: "a",
  name: "norms",
  question: "",
  kind: "grid",
  state: "running",
  message: "",
  runs: 4,
  statuses: { done: 1, training: 1, planned: 2 },
  queue_position: null,
  share: 0.25,
};
const OPEN = {
  ...ROW,
  version: "1",
  estimate: { seconds: 120, is_measured: true },
  planned_runs: [
    { variant: "norm pre", seed: 0, run: "run:0", status: "done", step: 20, steps: 20 },
    { variant: "norm pre", seed: 1, run: "run:1", status: "training", step: 10, steps: 20 },
    { variant: "norm post", seed: 0, run: null, status: "planned", step: 0 },
  ],
  results: { results: { variants: [VARIANT], drawn: ["norm pre"], summary: "So far, so good." } },
};
const CLAIM = {
  name: "sort",
  title: "Sorting",
  source: "somewhere",
  statement: "all",
  description: "sort 6",
  criterion: "all are right",
  deviations: ["Another seed."],
  settings: { d_model: 8, bias: false, seeds: [0, 1] },
  command: "python -m benchmarks published --only sort",
  estimate: { seconds: 240, is_measured: false },
  state: "none",
  experiment: null,
  step: 0,
  steps: 0,
  message: "",
};
beforeEach(() => {
  serve();
  localStorage.clear();
  store.owner.value = "ada";
  experiments.value = null;
  details.value = null;
  openId.value = "";
  outcomes.value = {};
});
/** Wait until a condition holds; effects run after the frame. */

test("an experiment is described by its state and its runs", () => {
  assert.equal(describeStatus(ROW), "training · 1 of 4 runs");
  assert.equal(describeStatus({ ...ROW, state: "cancelled" }), "cancelled · 1 of 4 runs");
  const waiting = { ...ROW, statuses: { failed: 1 }, queue_position: 3 };
  assert.equal(describeStatus(waiting), "position 3 in the queue · 0 of 4 runs, 1 failed");
  assert.equal(describeStatus({ ...waiting, queue_position: null }).split(" ")[0], "queued");
  assert.match(describeStatus({ ...ROW, statuses: { done: 4 } }), /^evaluating all lengths/);
  assert.equal(
    describeStatus({ ...OPEN, message: "slow" }),
    "training · 1 of 4 runs · about 2 min left: slow",
  );
});

test("the actions depend on the state", () => {
  assert.deepEqual(listActions(ROW), ["pause", "cancel"]);
  assert.deepEqual(listActions({ ...ROW, state: "paused" }), ["resume", "cancel"]);
  assert.deepEqual(listActions({ ...ROW, state: "cancelled" }), []);
  assert.deepEqual(listActions({ ...ROW, state: "done" }), []);
  assert.deepEqual(listActions({ state: "done", statuses: { failed: 1 } }), ["resume"]);
});

test("a duration has one form", () => {
  assert.equal(formatEstimate({ seconds: 240 }), "about 4 min");
  assert.equal(formatEstimate({ seconds: 60 }), "about 1 min");
  assert.equal(formatEstimate({ seconds: 59 }), "less than 1 min");
  assert.equal(formatEstimate({ seconds: 5160 }), "about 1 h 26 min");
  assert.equal(describePreset({ runs: 6, estimate: { seconds: 90 } }), "6 runs · about 2 min");
});

test("a stored result stays open, a deleted experiment does not", () => {
  openExperiment(STORED_PREFIX + "heads");
  applyPoll({ experiments: [ROW], open: null }); // the response to an earlier request
  assert.equal(openId.value, STORED_PREFIX + "heads");
  openExperiment("a");
  applyPoll({ experiments: [ROW], open: OPEN });
  assert.equal(variants.value.length, 1);
  applyPoll({ experiments: [ROW], open: { ...OPEN, state: "done", results: null } });
  assert.equal(details.value.state, "done");
  assert.equal(variants.value.length, 1);
  applyPoll({ experiments: [], open: null }); // it was deleted
  assert.equal(openId.value, "");
});

test("a large experiment draws the best lines, and others in the first free color", () => {
  const variants = Array.from({ length: 14 }, (_, i) => ({ ...VARIANT, label: String(i) }));
  openExperiment("a");
  const results = { results: { variants, drawn: ["9", "1", "3"] } };
  applyPoll({ experiments: [ROW], open: { ...OPEN, results } });
  assert.deepEqual([...lines.value.keys()], ["1", "3", "9"]);
  toggleVariant("3");
  toggleVariant("12");
  assert.deepEqual(Object.fromEntries(lines.value), { 1: 0, 9: 2, 12: 1 });
});

test("a large table is filtered by words, and begins with a hundred rows", async () => {
  settings.value = [{ name: "n_heads", label: "Heads" }];
  const variants = Array.from({ length: 120 }, (_, i) => ({ ...VARIANT, label: `n_heads ${i}` }));
  openExperiment("a");
  const results = { results: { variants, n_variants: 500, drawn: ["n_heads 1"], summary: "" } };
  applyPoll({ experiments: [ROW], open: { ...OPEN, runs: 5000, results } });
  await mount(html`<${Results} />`);
  const rows = () => box.querySelectorAll(".variants tbody tr").length;
  assert.equal(rows(), 100);
  await click(button("Show all 120 rows"));
  assert.equal(rows(), 120);
  assert.match(text(".find"), /120 of 120 combinations, the best of 500; the files have all/);
  assert.match(text(".runs-of summary"), /3 of 5,000/);
  await enter(box.querySelector(".find input"), "HEADS 11");
  assert.equal(rows(), 11);
  settings.value = [];
});

test("curves are medians with ranges, and those of the runs that train", () => {
  const drawn = new Map([["norm pre", 0]]),
    [line, live] = buildSeries([VARIANT], drawn, "curve");
  assert.deepEqual([line.label, line.x, line.low], ["pre", [10, 20], [0.1, 0.4]]);
  assert.deepEqual([live.label, live.x, live.y], ["pre, seed 1 so far", [10], [0.1]]);
  const empty = { ...VARIANT, curve: { steps: [], median: [], low: [], high: [] } };
  assert.equal(buildSeries([empty], drawn, "curve").length, 1);
  assert.equal(buildSeries([{ ...empty, live: [] }], drawn, "curve").length, 1);
  assert.deepEqual(buildSeries([VARIANT], new Map(), "curve"), []);
  settings.value = [{ name: "learning_rate", label: "Learning rate" }];
  const rate = { ...VARIANT, label: "learning_rate 0.006", short: "0.006" };
  const rates = new Map([[rate.label, 3]]);
  assert.equal(buildSeries([rate], rates, "loss")[0].label, "learning rate 0.006");
});

test("a single seed has its interval by length, several have their range", () => {
  const row = { label: "rope", n: 2, lengths: [1, 3], median: [1, 0.5], low: [1, 0], high: [1, 1] };
  assert.deepEqual(buildLengthSeries(row, 0).low, [1, 0]);
  const scores = [{ length: 3, low: 0.4, high: 0.6, exact_match: 0.5 }];
  const single = { ...row, n: 1, runs: [{ scores: [] }, { scores }] };
  assert.deepEqual(buildLengthSeries(single, 0).high, [null, 0.6]);
});

test("the table names the sequences of its numbers", () => {
  assert.equal(formatRange(spread(0.5, 0.25, 0.75), formatPercent), "50.0 % (25.0–75.0 %)");
  assert.equal(formatRange(spread(3), String), "3");
  assert.equal(formatStepsTo(null, 20), "–");
  assert.equal(formatStepsTo(spread(null), 1200), "not within 1,200");
  assert.equal(formatStepsTo({ ...spread(null, 60), reached: 1 }, 1200), "over 1,200");
  assert.equal(formatStepsTo(spread(80, 60, null), 600), "80 (60–…)");
  assert.equal(describeRuns({ ...VARIANT, diverged: 1, changed: 1 }).split(",").length, 3);
  const text = describeMeasurement({ variants: [VARIANT] });
  assert.match(text, /2,000 held-out sequences/);
  assert.match(text, /on 256 held-out sequences/);
  assert.match(describeMeasurement({ variants: [VARIANT] }, {}), /99 % to length/);
});

test("ranges are rounded like those of the summary", () => {
  const vectors = JSON.parse(
    readFileSync(new URL("../data/range_vectors.json", import.meta.url), "utf8"),
  );
  for (const [values, text] of vectors.percent)
    assert.equal(formatRange(spread(...values), formatPercent), text);
  for (const [values, text] of vectors.steps)
    assert.equal(formatStepsTo(spread(...values), 2000), text);
});

test("a run is described by its status and step", () => {
  const [done, training, waiting] = OPEN.planned_runs;
  assert.equal(describeRun(done), "done, step 20");
  assert.equal(describeRun(training), "training, step 10 of 20");
  assert.equal(describeRun(waiting), "not started");
  assert.equal(describeRun({ ...training, queue_position: 2 }), "position 2 in the queue");
  assert.equal(describeRun({ status: "failed", message: "no memory" }), "failed: no memory");
});

test("the table has the labels of the settings that vary", () => {
  assert.equal(settingsLabel([VARIANT, { ...VARIANT, label: "norm post", short: "post" }]), "norm");
  settings.value = [{ name: "norm", label: "Norm placement" }];
  assert.equal(settingsLabel([VARIANT]), "Norm placement");
  assert.equal(labelSettings("norm_x 2, norm 1"), "norm_x 2, norm 1");
  settings.value = [
    { name: "n_layers", label: "Layers" },
    { name: "predict_eos", label: "Predict EOS" },
    { name: "adam_beta1", label: "Beta 1" },
  ];
  assert.equal(labelSettings("n_layers 2, d_model 64: 100 %"), "layers 2, d_model 64: 100 %");
  assert.equal(labelSettings("predict_eos on, adam_beta1 0.9"), "predict EOS on, beta 1 0.9");
  settings.value = [];
  assert.equal(settingsLabel([VARIANT, { label: "heads 2", short: "2" }]), "settings");
});

test("the open experiment has its table, its curves and its files", async () => {
  openExperiment("a");
  applyPoll({ experiments: [ROW], open: OPEN });
  await mount(html`<${Results} />`);
  await waitFor(() => box.querySelector(".score-chart .pg-legend"));
  assert.equal(text(".summary"), "So far, so good.");
  assert.match(box.querySelector(".score-chart").textContent, /pre, seed 1 so far/);
  responses["experiments/csv"] = { csv: "a,b" };
  URL.createObjectURL = mock.fn(() => "blob:1");
  URL.revokeObjectURL = () => {};
  await click(".as-csv");
  responses["experiments/json"] = OPEN.results;
  await click(".as-json");
  responses["experiments/csv"] = { error: "no run has finished yet" };
  await click(".as-csv");
  assert.equal(URL.createObjectURL.mock.callCount(), 2);
  assert.match(box.querySelector(".results-note").textContent, /No run has finished yet\./);
  await click(".variant input");
  assert.deepEqual([...lines.value], []);
});

test("unequal budgets have the score that is compared", async () => {
  const variants = [20, 40].map((budget, i) => ({
    ...VARIANT,
    label: `norm ${i}`,
    budget,
    at_budget: spread(0.25),
  }));
  openExperiment("a");
  for (const [rows, hasColumn] of [
    [variants, true],
    [variants.map((variant) => ({ ...variant, budget: 20 })), false],
  ]) {
    const results = { results: { variants: rows, summary: "" } };
    applyPoll({ experiments: [ROW], open: { ...OPEN, version: String(hasColumn), results } });
    await mount(html`<${Results} />`);
    assert.equal(/smallest budget.*25\.0 %/s.test(text(".variants")), hasColumn);
  }
});

test("the result that a user opens takes the focus, others do not", async () => {
  openExperiment("a");
  applyPoll({ experiments: [ROW], open: OPEN });
  await mount(html`<${Results} />`);
  await waitFor(() => document.activeElement?.matches(".title"));
  const heading = box.querySelector(".title");
  heading.blur();
  applyPoll({ experiments: [ROW], open: { ...OPEN, version: "2" } });
  await settle();
  assert.ok(document.activeElement !== heading);
  const results = box.querySelector(".results");
  results.scrollIntoView = mock.fn();
  heading.getBoundingClientRect = () => ({ top: -80, bottom: -50 });
  openExperiment("a"); // again, from far below
  await waitFor(() => document.activeElement === heading);
  assert.equal(results.scrollIntoView.mock.callCount(), 1);
});

test("tables and charts have the labels of settings", async () => {
  settings.value = [{ name: "norm_placement", label: "Norm placement" }];
  const label = "norm_placement pre, d_ff 64",
    variant = { ...VARIANT, label, short: label };
  openExperiment("a");
  const lines = [{ ...OPEN.planned_runs[1], variant: label }],
    results = { results: { variants: [variant], summary: "Changing norm_placement: fine." } };
  applyPoll({ experiments: [ROW], open: { ...OPEN, planned_runs: lines, results } });
  await mount(html`<${Results} />`);
  assert.doesNotMatch(box.textContent, /norm_placement/);
  assert.equal(text(".summary"), "Changing norm placement: fine.");
  assert.equal(box.querySelector(".name").textContent, "norm placement pre, d_ff 64");
  assert.match(box.querySelector(".runs-of").textContent, /norm placement pre, d_ff 64/);
});

test("an experiment can be paused, cancelled and deleted", async () => {
  experiments.value = [ROW];
  await mount(html`<${Experiments} />`);
  for (const [name, action] of [
    ["Pause", "pause"],
    ["Cancel", "cancel"],
  ]) {
    await click(button(name));
    assert.deepEqual(sent.pop().slice(0, 2), [
      "experiments/action",
      { owner: "ada", experiment: "a", action },
    ]);
  }
  await click(button("Delete"));
  await click(button("Delete with its runs"));
  assert.equal(sent.pop()[1].action, "delete");
  box.querySelector(".experiments .open-it").click();
  assert.equal(openId.value, "a");
});

test("a card answers with the best and the worst variant", () => {
  const variant = (label, median, high = median) => ({
    label,
    budget: 1600,
    steps_to: { n: 4, median, low: 60, high, reached: median === null ? 1 : 4 },
  });
  assert.equal(
    describeAnswer([variant("1", 180), variant("4", 140), variant("2", 1500, null)]),
    "4: 99 % after 140 steps (60 to 140, 4 seeds); " +
      "2: 99 % after 1,500 steps (60 to over 1,600, 4 seeds).",
  );
  assert.equal(
    describeAnswer([variant("0.03", null), variant("0.006", 80)]),
    "0.006: 99 % after 80 steps (60 to 80, 4 seeds); 0.03: 1 of 4 seeds within 1,600 steps.",
  );
  assert.equal(describeAnswer([variant("a", null)]), "No variant reached 99 %.");
  const reach = (median, high) => ({ n: 5, median, low: 10, high });
  assert.equal(
    describeAnswer([
      { label: "rope", reach: reach(10, 11) },
      { label: "alibi", reach: reach(10.5, 12) },
    ]),
    "alibi: 99 % up to length 10.5 (10 to 12, 5 seeds); " +
      "rope: 99 % up to length 10 (10 to 11, 5 seeds).",
  );
});

test("a prepared experiment is started once, then opened", async () => {
  const preset = { name: "norm", title: "Norm?", why: "Because.", varied: "norm", kind: "grid" };
  const estimate = { seconds: 5, is_measured: true, message: "" };
  presets.value = [{ ...preset, runs: 6, estimate, experiment: null, stored: [] }];
  responses["experiments/submit"] = { experiment: "b" };
  await mount(html`<${Presets} />`);
  await click(button("Run it here"));
  assert.equal(openId.value, "b");
  const stored = [{ ...VARIANT, label: "pre", steps_to: null, budget: 9, positions: [] }];
  presets.value = [{ ...presets.value[0], experiment: "c", stored, verdict: "No difference." }];
  await settle();
  assert.match(text(".answer").replace(/\s+/g, " "), /^No difference\. No variant reached 99 %/);
  button("Open").click();
  assert.equal(openId.value, "c");
});

test("the form is a request, and a request is a form", () => {
  const values = toValues({ grid: [["dropout", "0, 0.3"]], kind: "lengths", times: 3, seeds: "4" });
  assert.equal(values["setting-0"], "dropout");
  assert.deepEqual(toRequest(values), {
    base: "",
    grid: [["dropout", "0, 0.3"]],
    seeds: "4",
    kind: "lengths",
    name: "",
    times: 3,
    n: 200,
  });
  assert.deepEqual(toRequest(toValues(null)).grid, [["norm_placement", "pre, post"]]);
  const odd = { grid: [1, ["norm"], ["d_model", null]], seeds: {}, times: "x" };
  assert.deepEqual(toValues(odd), toValues(null));
});

test("an error of the server is beside its field", () => {
  const values = toValues(null);
  const place = (field) => Object.keys(placeError({ error: "it is wrong", field }, values));
  assert.deepEqual(place("norm_placement"), ["values-0"]);
  assert.deepEqual(place("grid"), ["values-0"]);
  assert.deepEqual(place("seeds"), ["seeds"]);
  assert.deepEqual(place(undefined), ["form"]);
  assert.deepEqual(placeError({ runs: 3 }, values), {});
});

test("a new experiment is planned while one types, and has no error at first", async () => {
  settings.value = ["norm_placement", "dropout"].map((name) => ({
    name,
    label: name,
    group: "Model",
    help: "help",
    accepts: "numbers",
    suggested: "0, 0.1",
    default: "0",
  }));
  form.value = toValues(null);
  plan.value = null;
  const variants = [
    { parameters: 10, steps: 5 },
    { parameters: 20, steps: 5 },
  ];
  const test = "These seeds cannot show a difference.";
  responses["experiments/plan"] = { runs: 6, variants, estimate: OPEN.estimate, test };
  responses["experiments/places"] = PLACES;
  await mount(html`<${NewExperiment} />`);
  assert.equal(box.querySelector(".pg-error"), null);
  enter(box.querySelector(".setting-0"), "dropout");
  assert.equal(form.value["values-0"], "0, 0.1");
  await waitFor(() => plan.value);
  assert.deepEqual(describePlan(plan.value), ["6 runs: 2 combinations with 3 seeds; about 2 min."]);
  assert.equal(text(".begin"), "Start 6 runs");
  assert.equal(listFields(form.value, test).find((field) => field.name === "seeds").hint, test);
  assert.match(box.textContent, /These seeds cannot show a difference\./);
  responses["experiments/submit"] = { error: "you have too many runs" };
  await click(".begin");
  assert.match(box.textContent, /You have too many runs\./);
  plan.value = responses["experiments/plan"];
  responses["experiments/submit"] = { experiment: "d" };
  await settle();
  await click(".begin");
  assert.equal(openId.value, "d");
});

const PLACES = { slurm: true, hf_jobs: "ready", jobs: 2, machines: [] },
  MACHINE = { name: "CPU", cpu: "8 vCPU", hourly: 0.03, seconds: 200, cost: 0.21 };

test("a form has the places of this server, with the price of jobs", async () => {
  const names = (on) => listPlaceFields({ on }).map((field) => field.name);
  places.value = { ...PLACES, slurm: false, hf_jobs: "off" };
  assert.deepEqual(names(""), []);
  places.value = PLACES;
  assert.deepEqual(names("slurm"), ["on", "partition", "cores", "minutes"]);
  assert.deepEqual(names("hf-jobs"), ["on"]);
  assert.equal(isPlaceReady({ on: "hf-jobs" }), false);
  places.value = {
    ...PLACES,
    machines: ["small", "big"].map((flavor) => ({ ...MACHINE, flavor })),
  };
  assert.deepEqual(names("hf-jobs"), ["on", "flavor", "minutes"]);
  assert.match(describePrice({ on: "hf-jobs", flavor: "" }), /^2 jobs, each .* \$0\.21 in all/);
  assert.equal(describePrice({ on: "slurm", flavor: "" }), "");
  const values = toValues({}),
    submit = (changes) => toJobs({ ...values, ...changes });
  assert.deepEqual(submit({ on: "" }), {});
  assert.deepEqual(submit({ on: "hf-jobs" }).options, { minutes: 60, flavor: "small" });
  assert.deepEqual(submit({ on: "slurm", cores: "4" }).options, {
    minutes: 60,
    partition: "",
    cores: 4,
  });
});

test("the jobs of an experiment are counted by state", () => {
  const shards = [
    { runs: 2, done: 2, state: "" },
    { runs: 2, done: 1, state: "RUNNING" },
    { runs: 1, done: 0, state: "PENDING" },
  ];
  assert.equal(
    describeShards({ backend: "slurm", shards }),
    "SLURM: 1 of 3 jobs done, 1 running, 1 pending",
  );
  const elsewhere = { backend: "slurm", shards },
    row = { ...OPEN, state: "running", statuses: { done: 3, planned: 2 }, runs: 5, elsewhere };
  assert.equal(describeStatus(row), "in jobs · 3 of 5 runs");
});

test("the progress of a replication is described", () => {
  assert.equal(describeResult(CLAIM), "not run yet");
  assert.equal(describeResult({ ...CLAIM, state: "done" }, null), "comparing");
  assert.equal(describeResult({ ...CLAIM, state: "done" }, { summary: "not yet" }), "Not yet.");
  assert.equal(describeResult({ ...CLAIM, state: "done" }, { measured_text: "99 %" }), "99 %");
  const running = { ...CLAIM, state: "running", experiment: "a", step: 10, steps: 40 };
  assert.equal(describeResult(running), "running, 25 %");
  assert.equal(describeResult({ ...running, queue_position: 1 }), "position 1 in the queue");
  assert.equal(
    describeResult({ ...running, state: "paused", message: "why" }),
    "paused, 25 %: why",
  );
  assert.deepEqual(describeVerdict({ passed: true }, 1), ["✓ pass, 1 seed", "good"]);
  assert.deepEqual(describeVerdict({ passed: false }, 3), ["✗ fail, 3 seeds", "bad"]);
  assert.deepEqual(describeVerdict(null, 1), ["", ""]);
  assert.equal(describeSettings(CLAIM), "d_model 8 · bias off · seeds 0, 1");
});

async function mountReplications() {
  await mount(html`<${Replications} />`);
  await openDetails(".published");
}
async function openDetails(selector) {
  const details = box.querySelector(selector);
  details.open = true;
  details.dispatchEvent(new window.Event("toggle"));
  await settle();
}

test("the outcome of a finished replication is requested once", async () => {
  const done = { ...CLAIM, state: "done", experiment: "a", step: 40 };
  claims.value = [done];
  responses["replications/outcome"] = { passed: true, measured_text: "99 %", summary: "fine" };
  loadOutcomes();
  loadOutcomes();
  await mountReplications();
  assert.equal(sent.length, 1);
  assert.equal(outcomes.value[outcomeKey(done)].measured_text, "99 %");
  assert.equal(text(".measured"), "✓ pass, 2 seeds: 99 %");
  assert.equal(box.querySelector(".stored"), null);
  const stored = { text: "98 % of the tokens", passed: false, date: "2026-11-24", seeds: 3 };
  claims.value = [{ ...done, stored }];
  await settle();
  assert.equal(text(".stored"), "✗ fail, 3 seeds: 98 % of the tokens (2026-11-24)");
  outcomes.value = {};
  responses["replications/outcome"] = { error: "the server is busy" };
  loadOutcomes();
  await settle();
  assert.deepEqual(outcomes.value, {});
});

test("the published values are drawn beside those of a finished run", async () => {
  const curve = [
    [20, 1.9],
    [200, 0.27],
  ];
  assert.deepEqual(buildClaimSeries({ curve, measure: "annotated_transformer_loss" }, null), [
    {
      key: "published",
      label: "published, evaluation",
      x: [20, 200],
      y: [1.9, 0.27],
      color: 1,
      hasPoints: true,
    },
  ]);
  const drawn = buildClaimSeries({ curve, measure: "generalization_step" }, { curve: [[25, 0.1]] });
  assert.deepEqual(
    drawn.map(({ label, y }) => [label, y]),
    [
      ["published", [1.9, 0.27]],
      ["your run", [0.1]],
    ],
  );
  claims.value = [{ ...CLAIM, measure: "generalization_step", curve }];
  await mountReplications();
  const details = box.querySelector(".claim details");
  assert.equal(details.querySelector(".pg-chart"), null);
  await openDetails(".claim details");
  await waitFor(() => details.querySelector(".pg-legend"));
  assert.match(details.querySelector(".pg-legend").textContent, /Held-out exact match.*published/s);
});

test("a replication is started, and its experiment is opened", async () => {
  claims.value = [CLAIM];
  responses["replications/start"] = { experiment: "e" };
  await mountReplications();
  await click(button("Run"));
  assert.equal(openId.value, "e");
  claims.value = [{ ...CLAIM, state: "running", experiment: "f" }];
  await settle();
  button("Open").click();
  assert.equal(openId.value, "f");
});
