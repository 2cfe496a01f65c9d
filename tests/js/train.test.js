import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { enter, settle } from "./support/dom.js";
import {
  box,
  click,
  key,
  mount,
  responses,
  sent,
  serve,
  text,
  texts,
  waitFor,
} from "./support/page.js";
import { poller } from "../../playground/ui/static/shared/poller.js";
import { store } from "../../playground/ui/static/shared/store.js";
import {
  overlays,
  setOverlays,
  swapOverlay,
} from "../../playground/ui/static/train/data/overlays.js";
import {
  RunList,
  describeRun,
  describeState,
  groupRuns,
  matchesFilter,
} from "../../playground/ui/static/train/run_list.js";
import { axisMaxStep, withHeldOutLoss } from "../../playground/ui/static/train/curves.js";
import { followDeletions } from "../../playground/ui/static/train/data/actions.js";
import { followSelection, lacksWeights } from "../../playground/ui/static/train/data/model_poll.js";
import { local } from "../../playground/ui/static/train/data/engine.js";
import { predict } from "../../playground/ui/static/train/data/predict.js";
import { Dialogs, followLearning } from "../../playground/ui/static/train/dialogs.js";
import { form } from "../../playground/ui/static/train/settings.js";
import { describeParts } from "../../playground/ui/static/train/share_dialog.js";
import { TopBar } from "../../playground/ui/static/train/top_bar.js";
import { Prediction } from "../../playground/ui/static/train/train.js";
import { Samples } from "../../playground/ui/static/train/samples.js";
import { SavedCheckpoints } from "../../playground/ui/static/train/saved_checkpoints.js";
import {
  buildEmbedCode,
  buildProgram,
  Dialog as ShareDialog,
  open as openShare,
} from "../../playground/ui/static/train/share_dialog.js";
import { trainView } from "../../playground/ui/static/train/data/selection.js";
import { createReactive, NOTHING_OFF, state } from "../../playground/ui/static/train/state.js";
import { formatStatus } from "../../playground/ui/static/train/status.js";
import { effect, html } from "../../playground/ui/static/vendor/preact.js";

const RUN = {
  subject: "run:1",
  name: "reverse 1–10",
  task: "reverse 1–10",
  status: "done",
  parameters: 171_597,
  shape: [2, 4, 64],
  step: 200,
  max_steps: 200,
  best: 1,
  curve: [
    [10, 0],
    [200, 1],
  ],
  eval_size: 256,
  created: 40,
  origin: "user",
};
const LESSON_RUN = { ...RUN, subject: "run:2", name: "Heads", origin: "lesson" };

beforeEach(() => {
  serve({ "runs/curves": { curves: [] } });
  Object.assign(state, {
    modelRef: "run:1",
    status: "done",
    lastResponse: {},
    evaluations: [],
    scores: null,
    displayedSnapshot: null,
    viewedStep: null,
  });
  setOverlays([]);
});
const listRuns = (...runs) => store.setModels({ runs, checkpoints: [], slots: 2, now: 100 });

test("an effect runs again when a property that it reads changes", () => {
  const object = createReactive({ a: 1, b: 2 }),
    seen = [];
  effect(() => void seen.push(object.a));
  object.b = 3;
  object.a = 4;
  assert.deepEqual(seen, [1, 4]);
});

test("runs are grouped by their origin", () => {
  const experiment = { ...RUN, subject: "run:4", origin: "experiment" },
    { own, groups } = groupRuns([RUN, LESSON_RUN, experiment]);
  assert.deepEqual(own, [RUN]);
  assert.deepEqual(
    groups.map((group) => [group.title, group.runs]),
    [
      ["Lessons", [LESSON_RUN]],
      ["Experiments", [experiment]],
    ],
  );
});

test("a run has a description and a state", () => {
  const facts = "reverse 1–10 · 2 layers × 4 heads · 171,597 parameters · step 200";
  assert.match(describeRun(RUN, 100), new RegExp(`^${facts} · `));
  assert.match(describeRun({ ...RUN, step: 7 }, 100), /step 7 of 200/);
  assert.equal(describeState({ ...RUN, queue_position: 2 }), "second in the queue");
  assert.equal(describeState({ ...RUN, queue_position: 5 }), "5th in the queue");
  assert.equal(describeState({ ...RUN, status: "waiting" }), "queued");
  assert.equal(describeState(RUN), "done");
});

test("the list is the legend: the color of a run is drawn while its curves are", async () => {
  listRuns(RUN, { ...RUN, subject: "run:5", name: "other", curve: [] }, LESSON_RUN);
  await mount(html`<${RunList} />`);
  const names = () => texts(".run .name");
  assert.deepEqual(names(), ["reverse 1–10", "other", "Heads"]);
  const [own, other] = box.querySelectorAll(".plot-run");
  assert.deepEqual([own.checked, own.disabled], [true, true]);
  assert.deepEqual([other.checked, other.disabled], [false, false]);
  const [line, ...lines] = box.querySelectorAll(".sparkline polyline"); // not of an empty curve
  assert.equal(lines.length, 1);
  assert.equal(line.getAttribute("points"), "5,23 100,1");
  assert.equal(line.getAttribute("stroke"), "var(--pg-accent)");
  assert.equal(box.querySelector(".run-group").open, false);
  setOverlays(["run:5"]);
  await settle();
  assert.equal(other.checked, true);
  const row = box.querySelector(".run");
  listRuns({ ...RUN, name: "mine" });
  await settle();
  assert.equal(box.querySelector(".run"), row); // updated in place
  assert.deepEqual(names(), ["mine"]);
});

test("the open model is in the legend also when it is no run of the list", async () => {
  listRuns(LESSON_RUN);
  Object.assign(state, { modelRef: "checkpoint:copy", lastResponse: { name: "copy" } });
  await mount(html`<${RunList} />`);
  assert.match(box.querySelector(".open-model").textContent, /copy/);
});

test("the run that was open takes the color of the overlay that is opened", () => {
  setOverlays(["run:2", "run:5"]);
  swapOverlay("run:5", "run:1");
  assert.deepEqual(
    [...overlays.value].map(([ref, { colorIndex }]) => [ref, colorIndex]),
    [
      ["run:2", 0],
      ["run:1", 1],
    ],
  );
});

const QUEUED = "Queued: all 2 training slots are in use · next in the queue";
const SLOWED = { step: 1, speed: 2, max_steps: 9 };
const STATUSES = [
  ["starting", {}, "Starting a worker"],
  ["waiting", { queue_position: 1 }, QUEUED],
  ["waiting", { message: "no memory" }, "No memory. The run starts automatically"],
  [
    "training",
    { step: 50, max_steps: 200, latest: { steps_per_second: 50 }, parameters: 1000, device: "cpu" },
    "Training · step 50 of 200 · 50 steps/s · about 3 s left · 1,000 parameters · cpu",
  ],
  ["training", SLOWED, "Training · step 1 of 9 · slowed to 2 steps/s"],
  [
    "training",
    { step: 3, branched_from_step: 9 },
    "Replaying the first steps exactly, up to step 9",
  ],
  ["training", { step: 3, time_left: [60, "limit"] }, "Training · step 3 · pauses in 1 min"],
  ["paused", { step: 5 }, "Paused at step 5"],
  ["paused", { step: 5, branched_from_step: 5, has_worker: true }, "Paused at step 5, where this"],
  ["stopping", {}, "Stopping and saving. Press Stop again"],
  [
    "done",
    { step: 200, latest: { seconds: 2 } },
    "Done · 200 steps in 2.0 s · exact match 99.0 % of 8",
  ],
  [
    "stopped",
    { step: 7, max_steps: 9 },
    "Stopped at step 7 of 9 · checkpoint saved · exact match 99.0 % of 8",
  ],
  ["stopped", { step: 0, max_steps: 9 }, "Stopped before the first step"],
  ["checkpoint", { step: 9, name: "copy" }, "Checkpoint copy · 9 steps · exact match 99.0 %"],
  ["failed", { message: "killed" }, "Failed: killed"],
  ["empty", {}, "No model yet: press Train."],
  ["not-found", {}, "This run is not on this server"],
  ["opening", {}, "Opening"],
];
for (const [status, lastResponse, text] of STATUSES)
  test(`the status "${status}" is in words: ${text}`, () => {
    listRuns(RUN);
    Object.assign(state, { status, lastResponse, evaluations: [[10, 0.99, 0.99, 8]] });
    assert.ok(formatStatus().startsWith(text), formatStatus());
  });

test("the address has what differs from the first view", () => {
  const heads = [[[1]]],
    attention = { cross: heads, encoder: heads, decoder: heads };
  const info = { architecture: "encoder-decoder", n_layers: 2, axes: {}, source: [] };
  Object.assign(state, { isFresh: false, modelRef: "run:1", typedPass: null, probeInfo: info });
  Object.assign(state, { displayedSnapshot: { step: 4, attention } });
  Object.assign(state, { selectedKind: "encoder", selectedHead: [0, 0] });
  overlays.value = new Map();
  const none = {
    kind: null,
    head: null,
    over: null,
    off: null,
    means: null,
  };
  assert.deepEqual(trainView.read(), { ...none, kind: "encoder" });
  Object.assign(state, { selectedHead: [0, 1] });
  state.switchedOff = [{ kind: "cross", layer: 0, head: 1 }];
  const changed = { kind: "encoder", head: "1.2", off: "cross.1.2" };
  assert.deepEqual(trainView.read(), { ...none, ...changed });
  state.switchedOff = NOTHING_OFF;
});

test("the frame and the program name the model", () => {
  const code = buildEmbedCode("https://example.org/?model=copy&step=4", "samples");
  assert.match(code, /\?model=copy&amp;step=4&amp;embed=samples"/);
  assert.match(code, /height="300"/);
  const settings = { task: "copy", min_length: 1, max_length: 5, d_model: 16 };
  const program = buildProgram("watch:id", settings);
  assert.match(program, /model="watch:id"/);
  assert.match(program, /settings=\{"task":"copy","min_length":1,"max_length":5\}/);
});

test("a model that learns its task on screen offers what comes next", async () => {
  const learn = (step) => {
    state.evaluations = [[10, 0.5, 0.8, 256], ...(step ? [[step, 0.99, 1, 256]] : [])];
  };
  const own = { isFresh: false, modelRef: "run:1", status: "training", learnedStep: null };
  learn(70);
  Object.assign(state, { ...own, lastResponse: { is_owner: true } });
  await mount(html`<${Dialogs} /><${TopBar} />`);
  followLearning();
  await settle();
  assert.equal(box.querySelector(".learned"), null); // it had learned before
  state.modelRef = "run:2";
  learn(0);
  await settle();
  learn(70);
  await waitFor(() => box.querySelector(".learned"));
  assert.match(text(".learned"), /^\s*Learned at step 70/);
  assert.equal(text(".run-announcement").trim(), "Learned at step 70");
  learn(80); // the first step counts, once
  const details = { settings: { task: "reverse", max_length: 10 } };
  serve({ "runs/details": details, "form/fill": { error: "too long" } });
  await click([...box.querySelectorAll(".learned button")].at(-3));
  await waitFor(() => /^Too long/.test(form.message));
  const [, { settings }] = sent.find(([route]) => route === "form/fill");
  assert.equal(JSON.parse(settings).max_length, 20);
  assert.equal(box.querySelector(".learned"), null);
  Object.assign(form, { message: "" });
});

test("without the owner's consent the page gives the reason and requests no example", async () => {
  store.privacy.value = "The owner of this run keeps its examples private.";
  state.displayedSnapshot = { step: 3, samples: [], probe: null };
  await mount(html`<${Prediction} /><${Samples} />`);
  await predict();
  assert.match(text(".private"), /^The owner of this run keeps its examples private/);
  assert.equal(box.querySelector(".samples, .answer"), null);
  assert.deepEqual(sent, []);
  store.privacy.value = "";
  await settle();
  assert.equal(box.querySelector(".private"), null);
});

test("the picture of a model with parts off has what is right without them", () => {
  const part = { kind: "cross", layer: 1, head: 0, name: "cross-attention 2.1" };
  Object.assign(state, { displayedOff: [part], switchScore: { right: 176, measured: 256 } });
  assert.match(describeParts(), /^Without .*2\.1: 176 of 256 unseen inputs right$/);
  Object.assign(state, { displayedOff: [part, part], switchScore: null });
  assert.equal(describeParts(), "Without 2 parts");
  state.displayedOff = [];
});

test("the owner chooses in Share whether viewers may use the model", async () => {
  const details = { settings: { task: "dataset" }, share_id: "id", viewers_may_use: false };
  serve({ "runs/details": details, "runs/action": {} });
  state.lastResponse = { right: "own", name: "my run" };
  await mount(html`<${ShareDialog} />`);
  await openShare();
  await settle();
  const codes = () => texts(".code-kind option").join(),
    consent = () => box.querySelector(".consent input");
  assert.equal(consent().checked, false);
  assert.match(text(".sharing"), /without tokens. Viewers never get your dataset/);
  assert.equal(codes(), "Embed: learning curves,Embed: attention,Settings as JSON");
  await click(consent());
  await waitFor(() => consent().checked);
  const [, action] = sent.find(([route]) => route === "runs/action");
  assert.deepEqual([action.action, action.viewers_may_use], ["share", true]);
  assert.match(codes(), /Python program/);
  assert.deepEqual(texts(".files button"), ["Save as page", "Save as report"]);
  serve({ "runs/page": { error: "the model has too many parameters" } });
  await click(box.querySelector(".files button"));
  await waitFor(() => /too many parameters/.test(text(".file-note")));
  // viewers have no choice, and no file with rows of a private dataset
  state.lastResponse = { right: "use", name: "my run" };
  serve({ "runs/details": { settings: { task: "dataset" } } });
  await openShare();
  await settle();
  assert.equal(box.querySelector(".consent, .files button"), null);
  state.lastResponse = { right: "reuse" };
  await settle();
  assert.deepEqual(texts(".files button"), ["Save as report"]);
});

test("samples of the next step update the elements; those of the previous model stay", async () => {
  const sample = { source: ["1", "2"], target: ["2", "1"], prediction: ["2", "1"] };
  state.displayedSnapshot = { step: 3, samples: [sample] };
  await mount(html`<${Samples} />`);
  const row = box.querySelector(".samples li"),
    count = () => text(".right-of");
  assert.equal(count(), "1 of 1 right");
  state.displayedOff = [{ kind: "cross", layer: 1, head: 0 }];
  await settle();
  assert.equal(count(), "1 of 1 right with all parts on");
  state.displayedOff = [];
  state.displayedSnapshot = { step: 4, samples: [{ ...sample, prediction: ["2"] }] };
  state.viewedStep = 4;
  await settle();
  assert.equal(count(), "0 of 1 right at step 4");
  assert.equal(box.querySelector(".samples li"), row);
  assert.equal(box.querySelectorAll(".samples .wrong.pg-token").length, 1);
  Object.assign(state, { displayedSnapshot: null, viewedStep: null });
  await settle();
  assert.equal(box.querySelector(".samples li"), row);
});

test("the prediction of the previous model is marked until the reply", async () => {
  state.prediction = { prediction: ["1"], target: ["1"], modelRef: "run:1" };
  await mount(html`<${Prediction} />`);
  const answer = box.querySelector(".answer");
  assert.equal(answer.className, "answer");
  state.modelRef = "run:2";
  await settle();
  assert.equal(answer.className, "answer old");
});

test("a recorded step of a checkpoint has its predictions in the diagram alone", async () => {
  const reply = { prediction: ["1"], target: ["1"], step: 200, note: "" };
  serve({ "runs/predict": reply });
  await mount(html`<${Prediction} />`);
  store.suggestedInput.value = "3 1 4";
  store.latestStep.value = 200;
  Object.assign(state, { status: "checkpoint", displayedSnapshot: { step: 2 }, viewedStep: 2 });
  await predict();
  await settle();
  assert.equal(sent.length, 0);
  assert.equal(box.querySelector(".answer").textContent, "");
  assert.match(box.querySelector(".try-note").textContent, /see “guess” below/);
  state.viewedStep = 200;
  await predict();
  await settle();
  assert.equal(sent.length, 1);
  assert.match(box.querySelector(".answer").textContent, /^1 ✓/);
  store.input.value = "4 1"; // a typed sequence has the prediction of the last weights only
  state.viewedStep = 2;
  await predict();
  assert.equal(sent.length, 2);
  store.input.value = null;
});

test("a key changes the output before the diagram, a switch both at once", async (t) => {
  const part = { kind: "encoder", layer: 0, head: 0 },
    description = { examples: [], lengths: [1, 1], max_tokens: 1 },
    loaded = { step: 1, nParameters: 1, components: [part], description },
    seen = [];
  t.mock.method(local, "use", (_, compute) => compute(loaded));
  t.mock.method(local, "call", async (method, input) =>
    method === "answer"
      ? { prediction: [input], target: null, forward_pass: { source: [input] } }
      : { next: 0, right: 0, measured: 0 },
  );
  Object.assign(state, { probeInfo: { in_browser: true }, displayedSnapshot: { step: 1 } });
  const stop = effect(() => {
    const { prediction, typedPass } = state;
    if (prediction) seen.push([prediction.prediction[0], typedPass?.source[0]]);
  });
  for (const input of ["1", "2"]) {
    store.input.value = input;
    await predict();
  }
  assert.deepEqual(seen.slice(-4), [
    ["1", undefined],
    ["1", "1"],
    ["2", "1"],
    ["2", "2"],
  ]);
  state.switchedOff = [part];
  store.input.value = "3";
  await predict();
  assert.deepEqual(seen.slice(4), [["3", "3"]]);
  stop();
  store.input.value = null;
  Object.assign(state, { switchedOff: NOTHING_OFF, displayedOff: NOTHING_OFF, prediction: null });
  Object.assign(state, { typedPass: null, probeInfo: null, switchScore: null, importance: null });
});

test("figures are missing for models without weights", () => {
  assert.equal(lacksWeights({ status: "waiting", step: 0 }), true);
  assert.equal(lacksWeights({ status: "stopped", step: 0 }), true);
  assert.equal(lacksWeights({ status: "not-found" }), true);
  assert.equal(lacksWeights({ status: "stopped", step: 7 }), false);
  assert.equal(lacksWeights({ status: "starting", step: 0 }), false);
});

test("the axis of a stopped run keeps its length", () => {
  state.lastResponse = { step: 15, max_steps: 600 };
  for (const [status, last] of [
    ["training", 600],
    ["stopped", 600],
    ["done", 15],
  ]) {
    state.status = status;
    assert.equal(axisMaxStep.value, last);
  }
});

test("the held-out loss is a dashed line of the color of its run", () => {
  const open = { key: "open", label: "mine", color: "--pg-accent", x: [1, 2], y: [3, 2] },
    other = { key: "run:5", label: "other", color: 1, dash: 0, x: [1, 2], y: [3, 2] };
  overlays.value = new Map([
    ["run:5", { colorIndex: 0, curve: { evaluations: [[2, 0, 0, 8, 2.25]] } }],
  ]);
  state.evaluations = [
    [1, 0, 0, 8, null],
    [2, 0, 0, 8, 2.5],
  ];
  const drawn = withHeldOutLoss([other, open], true);
  assert.deepEqual(
    drawn.map(({ label, color, x, y, partOf }) => [label, color, x, y, partOf]),
    [
      ["other", 1, [1, 2], [3, 2], undefined],
      ["other, held-out", 1, [2], [2.25], "run:5"],
      ["mine, training", "--pg-accent", [1, 2], [3, 2], undefined],
      ["mine, held-out", "--pg-accent", [2], [2.5], undefined],
    ],
  );
  const dashes = new Set(drawn.filter(({ dash }) => dash).map(({ dash }) => dash));
  assert.equal(dashes.size, 1);
  const labels = () => withHeldOutLoss([open], false).map(({ label }) => label);
  assert.deepEqual(labels(), ["training", "held-out"]);
  state.evaluations = [];
  assert.deepEqual(labels(), ["training", "held-out"], "before the first evaluation");
  state.evaluations = [[1, 0, 0, 8, null]];
  assert.deepEqual(labels(), ["mine"], "a run without a held-out loss");
});

test("a list of many runs can be filtered by name, size and state", async () => {
  assert.ok(matchesFilter(RUN, "2 LAYERS done"));
  assert.ok(!matchesFilter(RUN, "3 layers"));
  const runs = Array.from({ length: 5 }, (_, i) => ({
    ...RUN,
    subject: "run:" + (i + 1),
    name: "run " + "abcde"[i],
  }));
  listRuns(...runs);
  await mount(html`<${RunList} />`);
  assert.equal(box.querySelector(".run-filter"), null);
  listRuns(...runs, { ...LESSON_RUN, subject: "run:9", name: "Ablate heads" });
  await settle();
  const names = () => texts(".run .name"),
    type = (text) => {
      const field = box.querySelector(".run-filter");
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      return settle();
    };
  await type("run c");
  assert.deepEqual(names(), ["run c"]);
  assert.equal(box.querySelector(".open-model"), null, "the open run is only filtered out");
  await type("ablate");
  assert.deepEqual(names(), ["Ablate heads"]);
  assert.equal(box.querySelector(".run-group").open, true);
  await type("nothing");
  assert.match(box.textContent, /No run matches the filter/);
  await type("");
  assert.equal(names().length, 6);
});

test("the menu of a run renames, repeats and deletes it", async () => {
  const payloads = () =>
      sent
        .filter(([route]) => route === "runs/action")
        .map(([, { action, name }]) => action + (name ?? "")),
    choose = (action) => click(`[data-action=${action}]`);
  listRuns(RUN);
  responses["runs/action"] = { subject: "" };
  await mount(html`<${RunList} />`);
  await choose("rename");
  assert.equal(box.querySelector(".renaming").value, RUN.name);
  enter(box.querySelector(".renaming"), "typed");
  listRuns({ ...RUN, step: 7 }, { ...RUN, subject: "run:2", name: "it trains" });
  await settle();
  assert.equal(box.querySelector(".renaming").value, "typed", "while another run trains");
  const names = [...box.querySelectorAll(".plot-run")].map((each) =>
    each.getAttribute("aria-label"),
  );
  assert.equal(new Set(names).size, 2, "no two checkboxes have one name");
  listRuns(RUN);
  await key(".renaming", "Escape");
  await choose("rename");
  enter(box.querySelector(".renaming"), "mine");
  await key(".renaming", "Enter");
  for (const action of ["rerun", "delete"]) await choose(action);
  assert.deepEqual(payloads(), ["renamemine", "rerun", "delete"]);
});

test("deleted runs have Undo, names are text", async () => {
  const name = "<img src=x onerror=alert(1)>";
  listRuns(RUN, { ...RUN, subject: "run:3", name, deleted: true });
  await mount(html`<${RunList} />`);
  assert.deepEqual(texts(".run .name"), [RUN.name]);
  assert.match(text(".undo"), /Undo “<img src=x onerror=alert\(1\)>”$/);
  await click(".undo button");
  const [, payload] = sent.find(([route]) => route === "runs/action");
  assert.deepEqual([payload.subject, payload.action], ["run:3", "undelete"]);
  listRuns({ ...RUN, name });
  await settle();
  assert.deepEqual([texts(".run .name"), box.querySelector("img")], [[name], null]);
});

test("a checkpoint is deleted by the second click, with the reason of a refusal", async () => {
  const checkpoint = { name: "a", step: 7, exact_match: null, bytes: 10, written: 0 };
  serve({
    "runs/details": { checkpoints: [{ ...checkpoint, is_pinned: true }, checkpoint] },
    "runs/action": { error: "it is the only checkpoint" },
  });
  state.lastResponse = { is_owner: true };
  await mount(html`<${SavedCheckpoints} />`);
  const details = box.querySelector(".saved");
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  await waitFor(() => text("tbody tr"));
  assert.match(text("tbody tr"), /^step 7 ?saved by you/);
  await click('[aria-label="Delete, step 7"]');
  assert.equal(sent.filter(([route]) => route === "runs/action").length, 0);
  await click('[aria-label="Delete permanently, step 7"]');
  assert.deepEqual(sent.find(([route]) => route === "runs/action")[1].action, "remove");
  assert.match(text(".saved-note"), /only checkpoint/);
});

test("tokens of a script from right to left stand in the order of the model", async () => {
  const sample = { source: ["א", "ב"], target: ["ב", "א"], prediction: ["ב", "א"] };
  Object.assign(state, { displayedSnapshot: { step: 1, samples: [sample] } });
  await mount(html`<${Samples} />`);
  assert.equal(text(".sample"), "א ב");
  assert.deepEqual(texts(".sample bdi"), ["א", "ב"]);
});

test("a run that another page deletes is closed", async () => {
  listRuns(RUN);
  store.model.value = RUN.subject;
  Object.assign(state, { modelRef: RUN.subject, defaultModel: "checkpoint:reverse" });
  followDeletions();
  store.deletedRuns.value = [RUN];
  assert.equal(store.model.value, "checkpoint:reverse");
  store.deletedRuns.value = [];
});

test("while another tab is open, the model is polled once a second", (t) => {
  t.mock.method(Date, "now", () => 1e15); // long after a command
  const { subscribe } = poller;
  let subscription;
  poller.subscribe = (each) => {
    subscription = each;
    return { wake() {}, unsubscribe() {} };
  };
  store.tab.value = "train";
  store.model.value = "run:polled";
  followSelection();
  poller.subscribe = subscribe;
  Object.assign(state, { status: "training", pointCount: 5 });
  assert.equal(subscription.intervalMs(), 200);
  store.tab.value = "inspect";
  assert.equal(subscription.intervalMs(), 1000);
  store.tab.value = "train";
});
