import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { enter, press, settle } from "./support/dom.js";
import { box, click, mount, responses, sent, serve, text, waitFor } from "./support/page.js";
import {
  BugExercise,
  buildCurves,
  buildMaps,
  buildObservations,
  openBug,
  resumeBug,
} from "../../playground/ui/static/learn/bug_exercise.js";
import {
  ClassBar,
  ClassForm,
  classroom,
  isGuessSent,
  joinClass,
  resumeClass,
  sendGuess,
} from "../../playground/ui/static/learn/classroom.js";
import { exerciseOfDay } from "../../playground/ui/static/learn/daily_bug.js";
import { buildChart, describeCell, Figures } from "../../playground/ui/static/learn/figures.js";
import {
  describeScore,
  drawLine,
  fillGaps,
  Guess,
  isNear,
  listXs,
  meanDistance,
} from "../../playground/ui/static/learn/guess.js";
import {
  changeInput,
  describeDuration,
  formatOutcome,
  Lessons,
  openLinkedLesson,
  partialLines,
  lessonStatus,
  resumeLessons,
} from "../../playground/ui/static/learn/lessons.js";
import { Start } from "../../playground/ui/static/learn/start.js";
import {
  describePart,
  PARTS,
  partOfBlock,
  strongestLink,
} from "../../playground/ui/static/learn/start_text.js";
import {
  bugState,
  catalog,
  lessonName,
  lessonStates,
  LINKED_BUG,
  readLink,
} from "../../playground/ui/static/learn/state.js";
import {
  describeMachine,
  listLessonLinks,
  Teaching,
} from "../../playground/ui/static/learn/teaching.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const CURVE_LESSON = {
  name: "lengths",
  title: "Length generalization",
  introduction: "A model.",
  instruction: "Predict.",
  question: "At which length?",
  kind: "curve",
  low: 1,
  high: 20,
  unit: "length",
  tolerance: 10,
  choices: [],
  options: [
    { name: "positions", label: "Positions", default: "learned", choices: ["learned", "rope"] },
  ],
  estimate: { seconds: 7.8, is_measured: true },
  pretrained_job: "",
  sources: "Word order",
  sources_anchor: "word-order",
  is_recorded: false,
  reuses_runs: false,
};
const CHOICE = {
  ...CURVE_LESSON,
  name: "heads",
  title: "One head",
  kind: "choice",
  tolerance: 0,
  choices: [
    ["one", "one head: alone"],
    ["same", "neither"],
  ],
  options: [],
};
const CATALOG = {
  lessons: [CHOICE, CURVE_LESSON],
  bugs: [
    { name: "causal-mask", title: "No causal mask" },
    { name: "transpose", title: "No transpose" },
  ],
  machine: { slots: 2, slots_per_owner: 1, max_measurements: 1, timeout_s: 180, is_shared: false },
  seed: 2,
  steps: 240,
  max_steps: 1000,
  bug_seconds: 14.4,
  docs: "playground/files/docs",
  sources: "sources.ipynb",
};
const RESULT = {
  value: 9,
  outcome: "length 9",
  explanation: "Because.",
  figures: [{ kind: "curves", series: [{ label: "measured", xs: [1, 20], ys: [1, 1] }] }],
  options: {},
  runs: [],
};
const PASS = {
  step: 200,
  axes: {
    encoder: [
      ["3", "EOS"],
      ["3", "EOS"],
    ],
    decoder: [
      ["3", "EOS"],
      ["SOS", "3"],
    ],
    cross: [
      ["3", "EOS"],
      ["3", "EOS"],
    ],
  },
  attention: {
    encoder: [[[900, 100, 500, 500]]],
    decoder: [[[1000, 0, 300, 700]]],
    cross: [[[20, 980, 600, 400]]],
  },
  contributions: { "encoder_layers.0.self_attn": 0.5, "decoder_layers.0.cross_attn": 1.25 },
  probe: { target: ["3", "EOS"], predicted: ["3", "3"], probability: [990, 400] },
};
const INFO = { architecture: "Transformer", n_layers: 1 };
beforeEach(() => {
  serve();
  store.owner.value = "o".repeat(32);
  catalog.value = CATALOG;
  classroom.value = null;
  lessonStates.value = {};
  lessonName.value = "lengths";
  bugState.value = { name: "random", seed: 2, steps: 240 };
});
const $ = (selector) => box.querySelector(selector);

test("a link opens a lesson with its options, a section, or a bug", () => {
  assert.deepEqual(readLink(CATALOG, new URLSearchParams("?learn=lengths&positions=rope&seed=1")), {
    section: "tour",
    lesson: "lengths",
    options: { positions: "rope", seed: 1 },
  });
  assert.deepEqual(
    readLink(CATALOG, new URLSearchParams("?learn=lengths&positions=upside-down&seed=x")).options,
    {},
  );
  assert.equal(readLink(CATALOG, new URLSearchParams("?learn=start")).section, "start");
  assert.deepEqual(readLink(CATALOG, new URLSearchParams("?learn=teach")), { section: "teach" });
  assert.match(
    readLink(CATALOG, new URLSearchParams("?learn=lesson-99")).error,
    /unknown lesson lesson-99.*lengths/,
  );
  assert.deepEqual(readLink(CATALOG, new URLSearchParams("?bug=random&steps=5")), {
    section: "bugs",
    bug: { name: "random", seed: 0, steps: 20, is_hidden: false },
  });
  assert.match(readLink(CATALOG, new URLSearchParams("?bug=typo")).error, /unknown bug typo/);
  assert.deepEqual(readLink(CATALOG, new URLSearchParams("?tab=learn")), {});
});

test("another guess or option discards the result", () => {
  const far = Array(20).fill(10);
  lessonStates.value = { lengths: { guess: far, result: RESULT } };
  assert.equal(lessonStatus("lengths"), "measured");
  changeInput("lengths", { guess: far });
  assert.deepEqual(lessonStates.value["lengths"], { options: {}, guess: far });
  assert.equal(lessonStatus("lengths"), "");
});

test("a link with other options discards the result, one with the same options keeps it", () => {
  const options = { positions: "rope", seed: 1 },
    measured = { options, guess: [3], result: RESULT };
  lessonStates.value = { lengths: measured };
  openLinkedLesson("lengths", { seed: 1, positions: "rope" });
  assert.equal(lessonStates.value["lengths"], measured);
  openLinkedLesson("lengths", { positions: "rope" });
  assert.deepEqual(lessonStates.value["lengths"], {
    options: { positions: "rope" },
    guess: [3],
  });
});

test("the list has a title and a state for each lesson, and opens it", async () => {
  lessonStates.value = {
    heads: { guess: "one", result: { ...RESULT, value: "one" } },
  };
  await mount(html`<${Lessons} />`);
  const stations = [...box.querySelectorAll(".station")];
  assert.deepEqual(
    stations.map((each) => each.querySelector("span:nth-child(2)").textContent),
    ["One head", "Length generalization", "Experiments", "Sources"],
  );
  assert.match(stations[0].textContent, /guessed right/);
  await click(stations[0]);
  assert.equal($(".lesson h3").textContent, "1. One head");
  await click(stations[2]);
  assert.equal(store.tab.value, "compare");
  assert.equal(store.readView().section, "experiments");
  store.tab.value = "learn";
});

/** Give the plot a size of 100 × 100, and send it a pointer event. */
function point(type, clientX, clientY) {
  const plot = $(".guess-plot");
  plot.setPointerCapture = () => {};
  plot.getBoundingClientRect = () => ({ left: 0, bottom: 100, width: 100, height: 100 });
  plot.dispatchEvent(Object.assign(new Event(type, { bubbles: true }), { clientX, clientY }));
}

test("a drawn guess is measured, polled and compared", async () => {
  const training = { status: "working", message: "Training", done: 3, total: 9, unit: "steps" };
  responses["jobs/submit"] = { job: "m" };
  responses["jobs/poll"] = { ...training, partial: { runs: [{ steps: 200 }], curves: [] } };
  await mount(html`<${Lessons} />`);
  $(".measure").click();
  await waitFor(() => text("[role=alert]") === "Draw the curve that you expect first.");
  point("pointerdown", 0, 100);
  await settle();
  point("pointermove", 100, 0);
  await waitFor(() => lessonStates.value["lengths"]?.guess?.at(-1) === 100);
  $(".measure").click();
  await waitFor(() => text(".pg-job-amount") === "3 of 9 steps");
  assert.equal(lessonStatus("lengths"), "running");
  responses["jobs/poll"] = { status: "done", result: RESULT };
  await waitFor(() => $(".outcome"));
  const { kind, request } = sent.find(([name]) => name === "jobs/submit")[1];
  assert.deepEqual([kind, request], ["lesson", { lesson: "lengths", options: {} }]);
  assert.match(text(".verdict"), /^On average 50 points away\./);
  assert.equal($(".guess-plot").getAttribute("aria-disabled"), "true");
  assert.equal(lessonStates.value["lengths"].job, undefined);
  await click($(".measure")); // guess again
  assert.deepEqual(lessonStates.value["lengths"], { options: {}, guess: undefined });
});

test("arrow keys move the points of a curve, and the mark of a number", async () => {
  const guesses = [];
  const draw = (lesson, guess) =>
    mount(
      html`<${Guess}
        lesson=${lesson}
        guess=${guess}
        isLocked=${false}
        onChange=${(value) => guesses.push(value)}
      />`,
    );
  await draw(CURVE_LESSON, null);
  for (const key of ["End", "ArrowUp"]) {
    press($(".guess-plot"), key);
    await settle();
  }
  assert.equal(guesses.pop().at(-1), 55);
  await draw({ ...CURVE_LESSON, kind: "number", unit: "position", high: 11 }, 11);
  for (const key of ["ArrowRight", "ArrowLeft", "Home"]) press($(".guess-plot"), key);
  assert.deepEqual(guesses, [11, 10, 1]);
  const valueText = () => $(".guess-plot").getAttribute("aria-valuetext");
  assert.equal(valueText(), "position 11");
  await draw({ ...CURVE_LESSON, kind: "number", unit: "%", high: 100 }, 30);
  assert.equal(valueText(), "30 %");
});

test("points that were not drawn are between the drawn ones", () => {
  assert.deepEqual(fillGaps([null, 20, null, 40, null]), [20, 20, 30, 40, 40]);
  const line = drawLine(Array(5).fill(null), { index: 3, value: 60 }, { index: 1, value: 20 });
  assert.deepEqual(line, [null, 20, 40, 60, null]);
  assert.deepEqual(drawLine(line, { index: 2, value: 90 }, { index: 2, value: 90 })[2], 90);
});

test("the score of a curve is its mean distance from the measured one", () => {
  const steps = { low: 0, high: 200 };
  assert.deepEqual(listXs(steps).slice(0, 3), [0, 10, 20]);
  assert.deepEqual(listXs({ low: 1, high: 5 }), [1, 2, 3, 4, 5]);
  const points = listXs(steps).map((x) => x / 2),
    shift = (by) => ({ xs: [5, 100, 195], ys: [0.025 + by, 0.5 + by, 0.975 - by] });
  assert.ok(meanDistance(steps, points, shift(0)) <= 0.5);
  assert.ok(Math.abs(meanDistance(steps, points, shift(0.2)) - 20) <= 0.5);
});

test("a pupil joins by a link, sends the last of several guesses, and leaves", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  responses["class/join"] = {};
  responses["class/guess"] = {};
  const { class: code } = readLink(CATALOG, new URLSearchParams("?class=bcdfgh"));
  await joinClass(code);
  assert.deepEqual(sent.at(-1).slice(0, 2), [
    "class/join",
    { owner: store.owner.value, code: "BCDFGH" },
  ]);
  sendGuess(CHOICE, "one");
  sendGuess(CURVE_LESSON, [10, null, 30]);
  mock.timers.tick(1000);
  mock.timers.reset();
  await waitFor(() => sent.at(-1)[0] === "class/guess");
  const { lesson, guess } = sent.at(-1)[1];
  assert.deepEqual([lesson, guess], ["lengths", [10, 20, 30]]);
  assert.equal(sent.filter(([name]) => name === "class/guess").length, 1);
  await waitFor(() => isGuessSent("lengths"));
  assert.equal(isGuessSent("heads"), false);
  await mount(html`<${ClassBar} /><${Lessons} />`);
  assert.match(text(".class-bar"), /Class BCDFGH: the teacher sees your guesses/);
  assert.equal(text(".sent"), "✓ Your teacher has your guess.");
  await click($(".class-bar button"));
  assert.equal(classroom.value, null);
});

test("a class that does not exist is left with a message", async () => {
  responses["class/join"] = { error: "no class has this code", code: "not-found" };
  await joinClass("BCDFGH");
  assert.equal(classroom.value, null);
  await mount(html`<${ClassBar} />`);
  assert.match(text(".learn-note"), /No class has this code/);
});

test("the page of a pupil sees that the teacher closed the class", async () => {
  responses["class/join"] = {};
  store.tab.value = "learn";
  await joinClass("BCDFGH");
  responses["class/join"] = { error: "no class has this code", code: "not-found" };
  await mount(html`<${ClassBar} />`);
  await waitFor(() => classroom.value === null);
  assert.match(text(".learn-note"), /The class was closed, or its seven days are over\./);
});

test("a teacher opens a class, sees every guess, and closes it", async () => {
  responses["class/open"] = { code: "BCDFGH", days: 7 };
  responses["class/poll"] = ({ lesson }) => ({
    lesson,
    n_pupils: 3,
    n_guesses: { heads: 2 },
    guesses: lesson === "heads" ? ["one", "one"] : [],
  });
  responses["class/close"] = {};
  store.tab.value = "learn";
  lessonName.value = "heads";
  await mount(html`<${ClassForm} /><${ClassBar} /><${Lessons} />`);
  await click($(".open-class"));
  await waitFor(
    () => text(".class-bar") === "Class BCDFGH: 3 pupils joined, 2 guesses in this lesson",
  );
  assert.equal(text(".predict label b"), "2");
  assert.match($(".class-link").value, /\?class=BCDFGH$/);
  responses["jobs/submit"] = { job: "m" };
  responses["jobs/poll"] = { status: "done", result: RESULT };
  $(".measure").click(); // without a guess of the teacher
  await waitFor(() => lessonStatus("heads") === "measured");
  assert.match(text(".verdict"), /^Measured/);
  classroom.value = null;
  resumeClass(); // after a reload
  assert.deepEqual(classroom.value, { code: "BCDFGH", isTeacher: true });
  await settle();
  [...box.querySelectorAll("button")].find((each) => each.textContent.includes("Close")).click();
  await settle();
  $(".pg-confirm .danger").click();
  await waitFor(() => $(".open-class"));
  assert.equal(sent.at(-1)[0], "class/close");
});

test("a stored result opens after a guess, without a training", async () => {
  const lesson = { ...CHOICE, is_recorded: true };
  catalog.value = { ...CATALOG, lessons: [lesson] };
  const recorded = { ...RESULT, value: "one", note: "A stored run, seed 0" },
    fetched = mock.method(globalThis, "fetch", async () => ({ json: async () => recorded }));
  lessonName.value = lesson.name;
  await mount(html`<${Lessons} />`);
  await click(".recorded");
  assert.match(text(".pg-error"), /first/);
  assert.equal(fetched.mock.callCount(), 0);
  changeInput(lesson.name, { guess: "one" });
  await settle();
  await click(".recorded");
  await waitFor(() => text(".outcome").includes("A stored run, seed 0"));
  assert.match(String(fetched.mock.calls[0].arguments[0]), /learn\/recorded\/.*\.json$/);
  assert.ok(!text(".outcome").includes("Open in Train"));
  fetched.mock.restore();
});

test("a measurement continues after a reload, and one that the server lost is over", async () => {
  lessonStates.value = { lengths: { job: "m", guess: [9] }, heads: { job: "lost" } };
  responses["jobs/poll"] = ({ job }) =>
    job === "m" ? { status: "done", result: RESULT } : { error: "no longer stored" };
  resumeLessons();
  await waitFor(() => lessonStatus("lengths") === "measured");
  await waitFor(() => !lessonStates.value["heads"].job);
  assert.equal(lessonStatus("heads"), "");
});

test("an error of the server is below the button", async () => {
  lessonStates.value = { lengths: { guess: [50] } };
  responses["jobs/submit"] = { error: "you have 2 measurements" };
  await mount(html`<${Lessons} />`);
  $(".measure").click();
  await waitFor(() => $(".finding").textContent.includes("You have 2 measurements."));
});

test("the button names its action, with the time of its training", async () => {
  assert.equal(describeDuration(CURVE_LESSON), "Training takes about 8 s.");
  assert.equal(
    describeDuration({ ...CURVE_LESSON, reuses_runs: true, estimate: { seconds: 7.8 } }),
    "Training takes about 8 s on two cores, less if an earlier lesson has trained this model.",
  );
  await mount(html`<${Lessons} />`);
  assert.equal(text(".measure"), "Train and measure");
  assert.equal($(".duration").textContent, "Training takes about 8 s.");
  catalog.value = { ...CATALOG, lessons: [{ ...CURVE_LESSON, pretrained_job: "translate" }] };
  await settle();
  assert.equal(text(".measure"), "Load and measure");
  assert.match($(".duration").textContent, /download of the pretrained model/);
  bugState.value = { ...bugState.value, steps: 120 };
  await mount(html`<${BugExercise} />`);
  assert.equal($(".duration").textContent, "Training takes about 7 s on two cores.");
});

test("the list and a lesson link the notebook with published numbers", async () => {
  await mount(html`<${Lessons} />`);
  assert.equal($("a.station").getAttribute("href"), "sources.ipynb");
  assert.equal($(".exercise a").getAttribute("href"), "sources.ipynb#word-order");
  assert.equal($(".exercise a").textContent, "Sources: Word order");
});

test("scores are sentences", () => {
  assert.equal(formatOutcome(CHOICE, { outcome: "one", value: "one" }), "one head");
  assert.equal(formatOutcome(CHOICE, { outcome: "one, layer 2", value: "one" }), "one, layer 2");
  assert.equal(formatOutcome(CURVE_LESSON, { outcome: "length 9", value: 9 }), "length 9");
  const number = { ...CURVE_LESSON, kind: "number", unit: "position", tolerance: 0 };
  assert.equal(describeScore(number, 8, { value: 9 }), "1 position away.");
  assert.equal(describeScore(number, 9, { value: 9 }), "✓ 0 positions away.");
  const frequency = { ...number, unit: "frequency" };
  assert.equal(describeScore(frequency, 4, { value: 9 }), "5 frequencies away.");
  assert.equal(describeScore({ ...number, unit: "%" }, 2, { value: 9.4 }), "7 points away.");
  assert.equal(describeScore(number, 9, { value: null }), "There is no measured value.");
  assert.equal(describeScore(CHOICE, "one", { value: "one" }), "✓ Right.");
  assert.equal(describeScore(CHOICE, "one", { value: "same" }), "Not this time.");
  assert.ok(isNear(CURVE_LESSON, Array(20).fill(95), RESULT));
  assert.equal(
    describeScore(CURVE_LESSON, Array(20).fill(99), RESULT),
    "✓ On average 1 point away.",
  );
});

test("the lines of a running training are its evaluations", () => {
  assert.deepEqual(partialLines({}), []);
  const [line] = partialLines({ curves: [{ label: "a", evaluations: [[10, 0.5]] }] });
  assert.deepEqual([line.xs, line.ys], [[10], [0.5]]);
});

test("a chart of lengths begins at the first length, a loss is logarithmic", () => {
  const series = [{ label: "exact match", xs: [3, 4], ys: [1, 0.5] }],
    lengths = buildChart({
      title: "By length",
      metric: "exact_match",
      x_label: "length",
      max_trained_length: 5,
      series,
    });
  assert.deepEqual(lengths.options.xRange, [3, null]);
  assert.deepEqual(lengths.options.shaded, [3, 5]);
  assert.equal(lengths.options.restingX, 4);
  const loss = buildChart({ title: "Loss", metric: "loss", max: 200, series });
  assert.deepEqual([loss.options.isLog, loss.options.xRange], [true, [0, 200]]);
});

test("figures are charts, maps, bars and tables of outputs", async () => {
  const map = { kind: "map", title: "Map", rows: ["5"], columns: ["3"], weights: [[0.25]] };
  const figures = [
    map,
    { kind: "bars", title: "Heads", bars: [{ label: "head 1", value: 2, note: "50 %" }] },
    {
      kind: "outputs",
      title: "Outputs",
      rows: [{ input: "3 1", target: "1 3", prediction: "3 1" }],
    },
    { kind: "curves", title: "Exact match", metric: "exact_match", series: [], note: "A note." },
  ];
  await mount(html`<${Figures} figures=${figures} />`);
  assert.equal($(".pg-bar-value").textContent, "2.00 · 50 %");
  assert.equal(box.querySelectorAll(".pg-token.wrong").length, 2);
  assert.match(box.textContent, /A note\./);
  assert.equal(describeCell(map, 0, 0), "5 attends to 3 with weight 0.250, position 1.");
  const heads = { rows: ["layer 1"], columns: ["head 1"], weights: [[0.5]], has_heads: true };
  assert.equal(describeCell(heads, 0, 0), "Layer 1, head 1: 50.0 %.");
});

const COPY = {
  failure: null,
  loss: 0.5,
  teacher_forced: 1,
  free_running: 0.25,
  multiset_match: 0.5,
  confidence: 0.75,
  output: [["3", 0.9]],
  source: ["3", "EOS"],
  target: ["SOS", "3"],
  attention: { encoder: [[[1]]], decoder: [[[1]], [[1]]], cross: [[[1]]] },
};
const CURVE = { loss: [2, 1], evaluations: [[20, 0.5, 0.25]] };
const BUG_RESULT = {
  n: 128,
  steps: 240,
  correct: COPY,
  buggy: COPY,
  curves: { correct: CURVE, buggy: { loss: [2], evaluations: [] } },
  source: { file: "attention.py", first_line: 10, lines: ["a = 1", "b = 2"] },
  diff: ["-a = 1", "+a = 2"],
};

test("the buggy model is compared with the correct one", () => {
  const [loss, scores] = buildCurves(BUG_RESULT.curves, 240);
  assert.deepEqual(
    loss.series.map((each) => [each.label, each.xs]),
    [
      ["correct model", [1, 2]],
      ["buggy model", [1]],
    ],
  );
  assert.equal(scores.series.length, 1); // without evaluations there is no line
  const failed = { ...BUG_RESULT, buggy: { failure: { step: 0, lines: [] } } },
    rows = buildObservations(failed);
  assert.deepEqual(rows[5], { name: "output for 3", correct: "3", buggy: "–" });
  assert.equal(rows[6].correct, "cross 1, encoder 1, decoder 2");
  assert.deepEqual(
    buildMaps(BUG_RESULT, "decoder").map((each) => each.title),
    ["correct", "correct", "buggy", "buggy"].map(
      (name, i) => `${name} model, layer ${(i % 2) + 1} of 2`,
    ),
  );
});

test("the bug is named, its line is found, and the solution is shown", async () => {
  const guess = (feedback) => ({ feedback, result: bugState.value.result });
  bugState.value = { ...bugState.value, job: "b", result: { ...BUG_RESULT, is_hidden: true } };
  responses["lessons/guess"] = () => guess("It is not “No transpose”.");
  await mount(html`<${BugExercise} />`);
  assert.equal($(".seed").value, "2");
  box.querySelectorAll(".guesses button")[1].click();
  await waitFor(() => $(".clue").textContent.includes("No transpose"));
  assert.deepEqual([sent.at(-1)[1].job, sent.at(-1)[1].bug], ["b", "transpose"]);
  const named = { ...bugState.value.result, bug_identified: true, title: "No causal mask" };
  responses["lessons/guess"] = { feedback: "", result: named };
  box.querySelectorAll(".guesses button")[0].click();
  await waitFor(() => $(".guess-line"));
  assert.match($(".guess-line .question").textContent, /Correct: No causal mask\./);
  responses["lessons/guess"] = () => guess("That line is the same.");
  box.querySelectorAll(".line")[1].click();
  await waitFor(() => $(".guess-line .clue").textContent === "Line 11: That line is the same.");
  const solution = { line_identified: true, explanation: "It leaks.", origin: "a tutorial" };
  responses["lessons/guess"] = { feedback: "", result: { ...named, ...solution } };
  $(".reveal").click();
  await waitFor(() => $(".solved"));
  assert.equal(sent.at(-1)[1].reveal, true);
  assert.equal($(".diff .minus").textContent, "-a = 1\n");
});

test("a buggy model that crashed is named, and its error is the next clue", async () => {
  openBug(exerciseOfDay("2026-11-25"));
  const failed = (step) => ({ ...BUG_RESULT, buggy: { failure: { step, lines: ["ValueError"] } } });
  bugState.value = { ...bugState.value, job: "b", result: failed(0) };
  await mount(html`<${BugExercise} />`);
  assert.match(text(".finding .pg-note"), /in its first step, so it has no curves/);
  assert.equal(text(".next-clue"), "Clue 2 of 2: the error");
  $(".next-clue").click();
  await waitFor(() => !$(".next-clue"));
  assert.match(text(".traceback"), /after 0 steps:\s+ValueError/);
  assert.doesNotMatch(text(".observations thead"), /buggy/);
  bugState.value = { ...bugState.value, result: failed(7) };
  await waitFor(() => /error after 7 steps, where/.test(text(".finding .pg-note")));
});

test("every clue and guess of the daily bug is a mark of its result", async () => {
  openBug(exerciseOfDay("2026-11-27"));
  bugState.value = { ...bugState.value, job: "b", result: BUG_RESULT };
  responses["lessons/guess"] = () => ({ feedback: "No.", result: BUG_RESULT });
  await mount(html`<${BugExercise} />`);
  assert.match(text("h3"), /Friday,? 27 November/);
  const parts = () => [
    box.querySelectorAll(".finding figure").length,
    box.querySelectorAll(".observations, .attention").length,
  ];
  assert.deepEqual(parts(), [1, 0]); // the loss
  $(".next-clue").click();
  await waitFor(() => parts()[0] === 2); // exact match
  box.querySelector(".guesses button").click();
  await waitFor(() => parts()[1] === 1); // output and scores
  assert.match(text(".next-clue"), /Clue 4 of 4: attention/);
  $(".next-clue").click();
  await waitFor(() => !$(".next-clue"));
  const named = { ...BUG_RESULT, bug_identified: true, title: "No causal mask" };
  responses["lessons/guess"] = { feedback: "", result: named };
  box.querySelector(".guesses button").click();
  await waitFor(() => text(".result").includes("Named after 1 wrong name and 2 more clues."));
  // the result stays with its day
  openBug(exerciseOfDay("2026-11-26"));
  await settle();
  assert.equal($(".result"), null);
});

test("seven days in a row have seven bugs, each with a seed of its own", () => {
  const bugs = CATALOG.bugs;
  CATALOG.bugs = Array.from({ length: 7 }, (_, i) => ({ name: `bug-${i}`, title: "" }));
  const days = ["26", "27", "28", "29", "30"].map((day) => exerciseOfDay(`2026-11-${day}`));
  days.push(exerciseOfDay("2026-12-01"), exerciseOfDay("2026-12-02"));
  CATALOG.bugs = bugs;
  assert.equal(new Set(days.map(({ name }) => name)).size, 7);
  assert.equal(new Set(days.map(({ seed }) => seed)).size, 7);
  assert.deepEqual(readLink(CATALOG, new URLSearchParams("?day=2026-11-27")).day, "2026-11-27");
  for (const day of ["2026-11-31x", "2999-01-01", "2026-13-01"])
    assert.match(readLink(CATALOG, new URLSearchParams({ day })).error, /no day with a bug/);
});

test("the bug of a link has no name on the page, a selected bug has one", async () => {
  const { bug } = readLink(CATALOG, new URLSearchParams("?bug=causal-mask&seed=1"));
  openBug(bug);
  await mount(html`<${BugExercise} />`);
  assert.deepEqual(
    [$(".which").value, $(".which").selectedOptions[0].textContent.trim()],
    [LINKED_BUG, "Bug of a link (name hidden)"],
  );
  $(".begin-bug").click();
  await waitFor(() => sent.some(([name]) => name === "jobs/submit"));
  const { kind, request } = sent.find(([name]) => name === "jobs/submit")[1];
  assert.deepEqual([kind, request.bug, request.is_hidden], ["bug", "causal-mask", true]);
  openBug({ name: "causal-mask", is_hidden: false });
  await settle();
  assert.equal($(".which").value, "causal-mask");
  assert.ok(!box.textContent.includes("Bug of a link"));
});

test("both models train once, whatever the number of clicks", async () => {
  responses["jobs/submit"] = { job: "b" };
  responses["jobs/poll"] = {
    status: "working",
    message: "Training",
    done: 20,
    total: 240,
    unit: "steps",
    partial: { curves: BUG_RESULT.curves },
  };
  await mount(html`<${BugExercise} />`);
  $(".begin-bug").click();
  $(".begin-bug").click();
  await waitFor(() => text(".pg-job-amount") === "20 of 240 steps");
  assert.equal(sent.filter(([name]) => name === "jobs/submit").length, 1);
  await waitFor(() => $(".finding").textContent.includes("Exact match"));
  responses["jobs/poll"] = { status: "cancelled", message: "cancelled; there is no measurement" };
  $(".pg-job button").click();
  await waitFor(() => $(".exercise").textContent.includes("Cancelled; there is no measurement."));
  assert.equal(sent.filter(([name]) => name === "jobs/cancel").length, 1);
});

test("an exercise that was measured before a reload is shown again", async () => {
  bugState.value = { ...bugState.value, job: "b" };
  responses["jobs/poll"] = { status: "done", result: BUG_RESULT };
  resumeBug();
  await mount(html`<${BugExercise} />`);
  await waitFor(() => $(".guess-name"));
});

test("each section of Start has a sentence with the measured numbers", () => {
  const selection = { kind: "cross", layer: 0, head: 0 },
    describe = (part) => describePart(part, { info: INFO, pass: PASS, selection, loss: 0.0142 });
  assert.match(describe("tokens"), /The encoder has 2 vectors, one for each token of 3 EOS\./);
  assert.match(describe("residual"), /cross-attention of decoder layer 1\. It adds 1\.25 times/);
  assert.match(describe("decoder"), /largest weight is 0\.98, from the query of 3 \(position 1\)/);
  assert.match(
    describe("output"),
    /1 of 2 tokens are correct.*prediction is 3.* 40\.0 %\. Training loss at step 200: 0\.0142\./,
  );
  assert.deepEqual(["encoder", "feed-forward", "decoder", "cross", "recurrent"].map(partOfBlock), [
    "encoder",
    "residual",
    "decoder",
    "decoder",
    "tokens",
  ]);
  assert.equal(PARTS.length, 6);
});

test("the only key of the first decoder query is no strong link", () => {
  assert.deepEqual(strongestLink(PASS, { kind: "decoder", layer: 0, head: 0 }), {
    query: 1,
    key: 1,
    weight: 0.7,
  });
});

test("Start plays the training, explains what is in sight, and follows typing", async () => {
  const loaded = {
    step: 200,
    weight_steps: [0, 60, 200],
    probe_info: { ...INFO, source: ["3", "EOS"], axes: PASS.axes },
    snapshot: PASS,
    points: { steps: [200], loss: [0.0142] },
  };
  serve({
    "runs/poll": loaded,
    "runs/predict": { forward_pass: PASS },
    "runs/snapshot": { snapshot: PASS },
  });
  const scroll = new Map(); // what happens when a section is in the middle of the window
  globalThis.IntersectionObserver = function Observer(onMove) {
    this.observe = ({ id }) => scroll.set(id, () => onMove([{ isIntersecting: true }]));
    this.disconnect = () => {};
  };
  await mount(html`<${Start} />`);
  await waitFor(() => $(".diagram .head"));
  assert.equal($(".diagram").dataset.part, "training");
  const steps = () => sent.filter(([name]) => name === "runs/snapshot").map(([, { step }]) => step);
  await waitFor(() => steps().length === 3);
  assert.deepEqual(steps(), [0, 60, 200]);
  enter($(".picture-step input"), "60");
  await waitFor(() => steps().at(-1) === 60);
  scroll.get("start-residual")();
  await settle();
  assert.equal($(".diagram").dataset.part, "residual");
  assert.equal($("[aria-current=true] h3").textContent, PARTS[3].title);
  const head = $('.head[data-kind="cross"]');
  head.click();
  press(head, "ArrowUp"); // without a layout, no head is above
  enter($(".picture-text"), "4 2");
  await waitFor(() => sent.some(([name, body]) => name === "runs/predict" && body.text === "4 2"));
  responses["runs/predict"] = { error: "x is not a digit" };
  enter($(".picture-text"), "x");
  await waitFor(() => box.textContent.includes("X is not a digit."));
});

test("teachers get a link for each exercise and the limits of the server", () => {
  const links = listLessonLinks(CATALOG.lessons);
  assert.equal(links[0][0], "learn=start");
  assert.deepEqual(links[1], ["learn=heads", "One head", "about 8 s"]);
  assert.deepEqual(links.at(-1), ["learn=lengths&positions=rope", "Length generalization: rope"]);
  assert.match(describeMachine(CATALOG.machine), /trains 2 runs at a time.*only from this machine/);
  assert.match(describeMachine({ ...CATALOG.machine, is_shared: true }), /from other machines/);
});

test("teachers get links to the documents, or their paths without them", async () => {
  await mount(html`<${Teaching} />`);
  assert.deepEqual(
    [...box.querySelectorAll('a[target="_blank"]')].map((link) => link.getAttribute("href")),
    ["playground/files/docs/teaching.md", "playground/files/docs/glossary.md"],
  );
  assert.match(box.textContent, /are in docs\/teaching\.md\. The glossary explains the terms\./);
  assert.match(box.textContent, /random bug does not\. Training takes about 14 s on two cores\./);
  catalog.value = { ...CATALOG, docs: null };
  await settle();
  assert.match(box.textContent, /are in\s+docs\/teaching\.md\./);
});
