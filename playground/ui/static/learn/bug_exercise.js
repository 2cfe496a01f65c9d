// Find the bug: the correct model and a copy with a bug.
// {name, seed, steps} is the request, `id` the job and `response` its last status, which is lost on
// a reload.
import { setMessage } from "../shared/common.js";
import { formatCount, formatMessage, formatNumber } from "../shared/format.js";
import { createSegmentedControl, el, setText } from "../shared/dom.js";
import { createButton, createParagraph, formatShare } from "./elements.js";
import { renderFigures } from "./figures.js";
import { requestLesson, saveLocal, storedState } from "./requests.js";
import { ACTIVE_STATUSES } from "./sections.js";
import { state } from "./state.js";
import { $ } from "./view.js";

let isStarting = false,
  bugState = { name: "mystery", seed: null, steps: 0 },
  attentionKind = "decoder",
  guessReplies = {};
const ATTENTION_KINDS = [
  ["cross", "Cross-attention"],
  ["encoder", "Encoder self-attention"],
  ["decoder", "Decoder self-attention"],
];
const REFERENCE_LABEL = "correct model",
  BUGGY_LABEL = "buggy model";
const isBugActive = () =>
  Boolean(
    bugState.id && (!bugState.response || ACTIVE_STATUSES.includes(bugState.response.status)),
  );

export function buildBugs() {
  const stored = storedState.bug;
  if (
    stored &&
    (stored.name === "mystery" || state.catalog.bugs.some((each) => each.name === stored.name))
  )
    bugState = { ...bugState, ...stored, recalled: Boolean(stored.id) };
  bugState.steps ||= state.catalog.steps;
  bugState.seed ??= state.catalog.seed;
  const names = el(
    "select",
    { className: "which" },
    el("option", { value: "mystery", textContent: "Random bug (name hidden)" }),
    ...state.catalog.bugs.map((each) =>
      el("option", { value: each.name, textContent: each.title }),
    ),
  );
  const seed = el("input", { type: "number", className: "seed", min: 0, max: 999999999, step: 1 });
  names.addEventListener("change", () => openBug({ ...bugRequest(), name: names.value }));
  seed.addEventListener("input", () =>
    openBug({ ...bugRequest(), seed: Math.max(0, Math.floor(+seed.value || 0)) }),
  );
  $(".bugs").replaceChildren(
    createParagraph(
      "One line of a small model is wrong; such bugs are typical of tutorials. The buggy and " +
        "the correct model train with the same seed and batches. Compare loss, output and " +
        "attention, then find the line.",
      "hint",
    ),
    el(
      "div",
      { className: "options" },
      el("label", {}, el("span", { textContent: "Bug" }), names),
      el("label", {}, el("span", { textContent: "Seed" }), seed),
    ),
    el(
      "div",
      { className: "act" },
      createButton("Train both", startBug, "Takes some seconds per model", "quiet main begin-bug"),
      createButton("Cancel", cancelBug, "", "quiet cancel-bug"),
    ),
    createParagraph("", "problem bug-note"),
    el(
      "div",
      { className: "state" },
      createParagraph("", "words"),
      el("span", { className: "share" }, el("i")),
    ),
    el("div", { className: "bug-curves pictures" }),
    el(
      "div",
      { className: "bug-observations", hidden: true },
      el("pre", { className: "traceback", tabIndex: 0 }),
      el("table", { className: "sheet" }),
      createParagraph("", "unnoticed"),
      el("div", { className: "attention" }),
      el("div", { className: "guess-name" }),
      el("div", { className: "guess-line" }),
      el("div", { className: "solved" }),
    ),
  );
}
const bugRequest = () => ({ name: bugState.name, seed: bugState.seed, steps: bugState.steps });
export function openBug(nextBug) {
  if (isBugActive()) requestLesson("cancel", { id: bugState.id });
  bugState = nextBug;
  guessReplies = {};
  saveLocal("bug", bugRequest());
  if ($(".bugs").firstChild) renderBug();
}
async function startBug() {
  if (isBugActive() || isStarting) return;
  setMessage($(".bug-note"), "");
  guessReplies = {};
  isStarting = true;
  renderBug();
  const requestedBug = bugState,
    reply = await requestLesson("start-bug", {
      bug: bugState.name,
      seed: bugState.seed,
      steps: bugState.steps,
    });
  isStarting = false;
  renderBug();
  if (reply.error) {
    setMessage($(".bug-note"), formatMessage(reply.error), "error");
    return;
  }
  if (bugState !== requestedBug) {
    requestLesson("cancel", { id: reply.id });
    return;
  }
  bugState.id = reply.id;
  delete bugState.response;
  delete bugState.recalled;
  saveLocal("bug", { ...bugRequest(), id: bugState.id });
  await pollBug();
}
async function cancelBug() {
  await requestLesson("cancel", { id: bugState.id });
  await pollBug();
}
export async function pollBug(force = false) {
  if (!isBugActive() && !force) return;
  const requestedBug = bugState,
    response = await requestLesson("poll", { id: bugState.id });
  if (bugState !== requestedBug) return;
  if (response.lost) {
    setMessage($(".bug-note"), formatMessage(response.error), "error");
    return;
  }
  setMessage($(".bug-note"), "");
  if (response.error) {
    delete bugState.id;
    if (!bugState.recalled) bugState.response = { status: "failed", message: response.error };
  } else bugState.response = response; // a job of an earlier session is not reported
  if (!bugState.id || ["failed", "cancelled"].includes(response.status))
    saveLocal("bug", bugRequest());
  renderBug();
}
async function submitGuess(payload) {
  const reply = await requestLesson("guess", { id: bugState.id, ...payload });
  if (reply.error) {
    setMessage($(".bug-note"), formatMessage(reply.error), "error");
    return;
  }
  if ("mistake" in payload) guessReplies.name = reply.feedback;
  else guessReplies.line = reply.feedback;
  await pollBug(true);
}

export function renderBug() {
  if (!state.catalog || state.currentSection !== "bugs") return;
  const response = bugState.response,
    busy = isBugActive() || isStarting,
    result = response && response.result;
  $(".which").value = bugState.name;
  if (document.activeElement !== $(".seed")) $(".seed").value = bugState.seed;
  $(".begin-bug").disabled = busy;
  $(".cancel-bug").hidden = !isBugActive();
  setText($(".begin-bug"), result ? "Train both again" : "Train both");
  const words = busy
    ? !response || response.status === "waiting"
      ? "queued"
      : "training both: step " + (response.done || 0) + " of " + (response.total || bugState.steps)
    : response && response.status !== "done"
      ? response.message
      : "";
  setText($(".bugs .words"), formatMessage(words)).classList.toggle(
    "error",
    Boolean(response && response.status === "failed"),
  );
  $(".bugs .state").hidden = !words;
  $(".bugs .share").hidden = !busy;
  $(".bugs .share i").style.width =
    response && response.total ? (100 * response.done) / response.total + "%" : 0;
  const curves = result ? result.curves : response && response.curves;
  $(".bug-curves").hidden = !curves;
  if (curves)
    renderFigures($(".bug-curves"), bugCurves(curves, result ? result.steps : response.total));
  $(".bug-observations").hidden = !result;
  if (result) renderObservations(result);
}
function bugCurves({ right, broken }, steps) {
  const loss = (label, colorIndex, curve) => ({
    label,
    colorIndex,
    xs: curve.loss.map((_, i) => i + 1),
    ys: curve.loss,
  });
  const scores = (label, colorIndex, curve, at) => ({
    label,
    colorIndex,
    xs: curve.evaluations.map((s) => s[0]),
    ys: curve.evaluations.map((s) => s[at]),
  });
  const some = (list) => list.filter((each) => each.xs.length);
  return [
    {
      kind: "curves",
      title: "Training loss",
      what: "loss",
      max: steps,
      series: some([loss(REFERENCE_LABEL, 0, right), loss(BUGGY_LABEL, 4, broken)]),
    },
    {
      kind: "curves",
      title: "Exact match, free-running and teacher-forced",
      what: "share",
      max: steps,
      series: some([
        scores(REFERENCE_LABEL + ", free-running", 0, right, 2),
        scores(BUGGY_LABEL + ", teacher-forced", 1, broken, 1),
        scores(BUGGY_LABEL + ", free-running", 4, broken, 2),
      ]),
    },
  ];
}
function renderObservations(result) {
  const { right, broken } = result,
    failure = broken.trouble;
  $(".traceback").hidden = !failure;
  setText(
    $(".traceback"),
    failure
      ? "Buggy model, after " +
          formatCount(failure.step, "step") +
          ":\n\n" +
          failure.lines.join("\n")
      : "",
  );
  const rows = [
    ["mean loss of the last 10 steps", (c) => formatNumber(c.loss)],
    ["exact match, teacher-forced", (c) => formatShare(c.teacher_forced)],
    ["exact match, free-running", (c) => formatShare(c.free_running)],
    ["correct tokens, in any order", (c) => formatShare(c.symbols)],
    ["mean probability of the predicted token", (c) => formatShare(c.sure)],
    [
      "output for " + result.right.source.slice(0, -1).join(" "),
      (c) => c.answer.map((each) => each[0]).join(" "),
    ],
    [
      "layers with stored attention",
      (c) =>
        ATTENTION_KINDS.map(
          ([kind, name]) => name.toLowerCase() + " " + c.attention[kind].length,
        ).join(", "),
    ],
  ];
  const row = (tag, cells) => el("tr", {}, ...cells.map((text) => el(tag, { textContent: text })));
  $(".bugs .sheet").replaceChildren(
    row("th", ["on " + result.n + " held-out sequences", REFERENCE_LABEL, BUGGY_LABEL]),
    ...rows.map(([name, of]) =>
      row("td", [name, right.trouble ? "–" : of(right), failure ? "–" : of(broken)]),
    ),
  );
  const silentVariant = result.unnoticed;
  setText(
    $(".unnoticed"),
    !silentVariant
      ? ""
      : "Python does not always raise an error. When " +
          silentVariant.when +
          ", nothing fails. After " +
          silentVariant.steps +
          " steps the loss of the buggy model is then " +
          (silentVariant.broken ? formatNumber(silentVariant.broken.loss) : "–") +
          " (correct model: " +
          formatNumber(silentVariant.right.loss) +
          ")" +
          (silentVariant.broken && silentVariant.broken.leaks && !silentVariant.right.leaks
            ? ". This loss is low because of an information leak: later target tokens " +
              "change earlier predictions."
            : "."),
  );
  renderAttention(result);
  renderQuiz(result);
}
// Attention maps of every layer of both models, averaged over heads.
function renderAttention(result) {
  const box = $(".attention"),
    both = [
      [REFERENCE_LABEL, result.right],
      [BUGGY_LABEL, result.broken],
    ].filter(([, copy]) => !copy.trouble);
  box.hidden = both.length < 2;
  if (box.hidden) return;
  if (!box.firstChild)
    box.append(
      el("p", {
        className: "title",
        textContent:
          "Attention on " +
          result.right.source.slice(0, -1).join(" ") +
          ", teacher-forced, mean over heads",
      }),
      createSegmentedControl(
        ATTENTION_KINDS,
        attentionKind,
        (kind) => {
          attentionKind = kind;
          renderAttention(bugState.response.result);
        },
        "Kind of attention",
      ),
      el("div", { className: "maps" }),
    );
  const { source, target } = result.right,
    rows = attentionKind === "encoder" ? source : target,
    columns = attentionKind === "decoder" ? target : source;
  const pictures = both.flatMap(([label, copy]) =>
    copy.attention[attentionKind].map((weights, layer) => ({
      kind: "map",
      title: label + ", layer " + (layer + 1) + " of " + copy.attention[attentionKind].length,
      rows,
      columns,
      weights,
      size: 24,
      rest: " ",
    })),
  );
  renderFigures(box.querySelector(".maps"), pictures);
}
function renderQuiz(result) {
  const response = bugState.response,
    name = $(".guess-name"),
    line = $(".guess-line");
  name.hidden = !response.mystery || response.bug_identified;
  if (!name.hidden) {
    if (!name.firstChild)
      name.append(
        el("p", { className: "question", textContent: "Which bug is it?" }),
        el(
          "div",
          { className: "guesses" },
          ...state.catalog.bugs.map((each) =>
            createButton(each.title, () => submitGuess({ mistake: each.name })),
          ),
        ),
        createParagraph("", "clue"),
        el(
          "p",
          {},
          createButton("Show answer", () => submitGuess({ reveal: true }), "", "quiet reveal"),
        ),
      );
    setText(name.querySelector(".clue"), guessReplies.name || "");
  }
  line.hidden = !response.bug_identified || response.line_identified;
  if (!line.hidden) {
    const source = result.source,
      key = bugState.id + response.name;
    if (line.dataset.key !== key) {
      line.dataset.key = key;
      line.replaceChildren(
        createParagraph(
          (response.mystery ? "Correct: " + response.title + ". " : "") +
            "Below is the correct source. Which line differs in the buggy model?",
          "question",
        ),
        createParagraph(source.file, "file"),
        el(
          "ol",
          { className: "source", start: source.first },
          ...source.lines.map((text, i) =>
            el(
              "li",
              { value: source.first + i },
              createButton(
                text || " ",
                () => submitGuess({ line: i }),
                "Line " + (source.first + i),
                "line",
              ),
            ),
          ),
        ),
        createParagraph("", "clue"),
        el(
          "p",
          {},
          createButton("Show answer", () => submitGuess({ reveal: true }), "", "quiet reveal"),
        ),
      );
    }
    setText(line.querySelector(".clue"), guessReplies.line || "");
  }
  const solved = $(".solved");
  solved.hidden = !response.line_identified;
  if (response.line_identified && solved.dataset.key !== bugState.id) {
    solved.dataset.key = bugState.id;
    solved.replaceChildren(
      el("p", { className: "verdict ok", textContent: response.title }),
      el(
        "pre",
        { className: "diff", tabIndex: 0 },
        ...result.diff.map((text) =>
          el("span", {
            className: text[0] === "+" ? "plus" : text[0] === "-" ? "minus" : "",
            textContent: text + "\n",
          }),
        ),
      ),
      createParagraph(response.why),
      createParagraph("Source: " + response.met_in + ".", "hint"),
    );
  }
}
