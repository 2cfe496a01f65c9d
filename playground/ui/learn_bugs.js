// ---------------------------------------- find the bug: the correct model and a copy with a bug
// {name, seed, steps} is the request, `id` the job and `told` its last status. `told` is lost on a
// reload.
let beginning = false,
  bug = { name: "mystery", seed: 0, steps: 0 },
  bugPicture = "decoder",
  guessed = {};
const ATTENTION = [
  ["encoder", "Encoder"],
  ["decoder", "Decoder"],
  ["cross", "Cross"],
];
const RIGHT = "correct model",
  BROKEN = "buggy model";
const bugGoing = () => Boolean(bug.id && (!bug.told || UNDER_WAY.includes(bug.told.status)));

function buildBugs() {
  const kept = memory.bug;
  if (kept && (kept.name === "mystery" || lessons.bugs.some((each) => each.name === kept.name)))
    bug = { ...bug, ...kept, recalled: Boolean(kept.id) };
  bug.steps ||= lessons.steps;
  const names = el(
    "select",
    { className: "which" },
    el("option", { value: "mystery", textContent: "Random bug (name hidden)" }),
    ...lessons.bugs.map((each) => el("option", { value: each.name, textContent: each.title })),
  );
  const seed = el("input", { type: "number", className: "seed", min: 0, max: 999999999, step: 1 });
  names.addEventListener("change", () => openBug({ ...asked(), name: names.value }));
  seed.addEventListener("input", () =>
    openBug({ ...asked(), seed: Math.max(0, Math.floor(+seed.value || 0)) }),
  );
  $(".bugs").replaceChildren(
    paragraph(
      "Each bug is one wrong line in the source of this project, typical of tutorials. A " +
        "small model with this line trains beside the correct model, with the same seed and " +
        "batches. Compare loss, output and attention, then find the line.",
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
      button("Train both", beginBug, "Takes some seconds per model", "quiet main begin-bug"),
      button("Cancel", cancelBug, "", "quiet cancel-bug"),
    ),
    paragraph("", "problem bug-note"),
    el(
      "div",
      { className: "state" },
      paragraph("", "words"),
      el("span", { className: "share" }, el("i")),
    ),
    el("div", { className: "bug-curves pictures" }),
    el(
      "div",
      { className: "bug-seen", hidden: true },
      el("pre", { className: "traceback", tabIndex: 0 }),
      el("table", { className: "sheet" }),
      paragraph("", "unnoticed"),
      el("div", { className: "looks" }),
      el("div", { className: "ask-name" }),
      el("div", { className: "ask-line" }),
      el("div", { className: "solved" }),
    ),
  );
}
const asked = () => ({ name: bug.name, seed: bug.seed, steps: bug.steps });
function openBug(wanted) {
  if (bugGoing()) ask("cancel", { id: bug.id });
  bug = wanted;
  guessed = {};
  keep("bug", asked());
  if ($(".bugs").firstChild) drawBug();
}
async function beginBug() {
  if (bugGoing() || beginning) return;
  note($(".bug-note"), "");
  guessed = {};
  beginning = true;
  drawBug();
  const mine = bug,
    reply = await ask("bug", { bug: bug.name, seed: bug.seed, steps: bug.steps });
  beginning = false;
  drawBug();
  if (reply.error) {
    note($(".bug-note"), sentenceOf(reply.error), "error");
    return;
  }
  if (bug !== mine) {
    ask("cancel", { id: reply.id });
    return;
  }
  bug.id = reply.id;
  delete bug.told;
  delete bug.recalled;
  keep("bug", { ...asked(), id: bug.id });
  await followBug();
}
async function cancelBug() {
  await ask("cancel", { id: bug.id });
  await followBug();
}
async function followBug(again = false) {
  if (!bugGoing() && !again) return;
  const mine = bug,
    told = await ask("poll", { id: bug.id });
  if (bug !== mine) return;
  if (told.lost) {
    note($(".bug-note"), sentenceOf(told.error), "error");
    return;
  }
  note($(".bug-note"), "");
  if (told.error) {
    delete bug.id;
    if (!bug.recalled) bug.told = { status: "failed", sentence: told.error };
  } else bug.told = told; // a job of an earlier session is not reported
  if (!bug.id || ["failed", "cancelled"].includes(told.status)) keep("bug", asked());
  drawBug();
}
async function guess(what) {
  const reply = await ask("guess", { id: bug.id, ...what });
  if (reply.error) {
    note($(".bug-note"), sentenceOf(reply.error), "error");
    return;
  }
  if ("mistake" in what) guessed.name = reply.says;
  else guessed.line = reply.says;
  await followBug(true);
}

function drawBug() {
  if (!lessons || part !== "bugs") return;
  const told = bug.told,
    busy = bugGoing() || beginning,
    result = told && told.result;
  $(".which").value = bug.name;
  if (document.activeElement !== $(".seed")) $(".seed").value = bug.seed;
  $(".begin-bug").disabled = busy;
  $(".cancel-bug").hidden = !bugGoing();
  put($(".begin-bug"), result ? "Train both again" : "Train both");
  const words = busy
    ? !told || told.status === "waiting"
      ? "queued"
      : "training both: step " + (told.done || 0) + " of " + (told.total || bug.steps)
    : told && told.status !== "done"
      ? told.sentence
      : "";
  put($(".bugs .words"), sentenceOf(words)).classList.toggle(
    "error",
    Boolean(told && told.status === "failed"),
  );
  $(".bugs .state").hidden = !words;
  $(".bugs .share").hidden = !busy;
  $(".bugs .share i").style.width = told && told.total ? (100 * told.done) / told.total + "%" : 0;
  const curves = result ? result.curves : told && told.curves;
  $(".bug-curves").hidden = !curves;
  if (curves)
    drawPictures($(".bug-curves"), curvePictures(curves, result ? result.steps : told.total));
  $(".bug-seen").hidden = !result;
  if (result) drawSeen(result);
}
function curvePictures({ right, broken }, steps) {
  const loss = (label, place, curve) => ({
    label,
    place,
    xs: curve.loss.map((_, i) => i + 1),
    ys: curve.loss,
  });
  const scores = (label, place, curve, at) => ({
    label,
    place,
    xs: curve.scored.map((s) => s[0]),
    ys: curve.scored.map((s) => s[at]),
  });
  const some = (list) => list.filter((each) => each.xs.length);
  return [
    {
      kind: "curves",
      title: "Training loss",
      what: "loss",
      most: steps,
      series: some([loss(RIGHT, 0, right), loss(BROKEN, 4, broken)]),
    },
    {
      kind: "curves",
      title: "Exact match, free-running and teacher-forced",
      what: "share",
      most: steps,
      series: some([
        scores(RIGHT + ", free-running", 0, right, 2),
        scores(BROKEN + ", teacher-forced", 1, broken, 1),
        scores(BROKEN + ", free-running", 4, broken, 2),
      ]),
    },
  ];
}
function drawSeen(result) {
  const { right, broken } = result,
    trouble = broken.trouble;
  $(".traceback").hidden = !trouble;
  put(
    $(".traceback"),
    trouble
      ? "Buggy model, after " + plural(trouble.step, "step") + ":\n\n" + trouble.lines.join("\n")
      : "",
  );
  const rows = [
    ["mean loss of the last 10 steps", (c) => number(c.loss)],
    ["exact match, teacher-forced", (c) => share(c.given)],
    ["exact match, free-running", (c) => share(c.alone)],
    ["correct tokens, in any order", (c) => share(c.symbols)],
    ["mean probability of the predicted token", (c) => share(c.sure)],
    [
      "output for " + result.right.source.slice(0, -1).join(" "),
      (c) => c.answer.map((each) => each[0]).join(" "),
    ],
    [
      "recorded attention layers",
      (c) =>
        ATTENTION.map(([kind, name]) => name.toLowerCase() + " " + c.attention[kind].length).join(
          ", ",
        ),
    ],
  ];
  const row = (tag, cells) => el("tr", {}, ...cells.map((text) => el(tag, { textContent: text })));
  $(".bugs .sheet").replaceChildren(
    row("th", ["on " + result.n + " held-out sequences", RIGHT, BROKEN]),
    ...rows.map(([name, of]) =>
      row("td", [name, right.trouble ? "–" : of(right), trouble ? "–" : of(broken)]),
    ),
  );
  const quiet = result.unnoticed;
  put(
    $(".unnoticed"),
    !quiet
      ? ""
      : "Python does not always raise an error: if " +
          quiet.when +
          ", nothing fails. After " +
          quiet.steps +
          " steps the loss of the buggy model is then " +
          (quiet.broken ? number(quiet.broken.loss) : "–") +
          " (correct model: " +
          number(quiet.right.loss) +
          ")" +
          (quiet.broken && quiet.broken.leaks && !quiet.right.leaks
            ? ". The reason for a low loss is an information leak: later target tokens " +
              "change earlier predictions."
            : "."),
  );
  drawLooks(result);
  drawQuestions(result);
}
// Attention maps of every layer of both models, averaged over heads.
function drawLooks(result) {
  const box = $(".looks"),
    both = [
      [RIGHT, result.right],
      [BROKEN, result.broken],
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
      choice(
        ATTENTION,
        bugPicture,
        (kind) => {
          bugPicture = kind;
          drawLooks(bug.told.result);
        },
        "Kind of attention",
      ),
      el("div", { className: "maps" }),
    );
  const { source, target } = result.right,
    rows = bugPicture === "encoder" ? source : target,
    columns = bugPicture === "decoder" ? target : source;
  const pictures = both.flatMap(([label, copy]) =>
    copy.attention[bugPicture].map((weights, layer) => ({
      kind: "map",
      title: label + ", layer " + (layer + 1) + " of " + copy.attention[bugPicture].length,
      rows,
      columns,
      weights,
      size: 24,
      rest: " ",
    })),
  );
  drawPictures(box.querySelector(".maps"), pictures);
}
function drawQuestions(result) {
  const told = bug.told,
    name = $(".ask-name"),
    line = $(".ask-line");
  name.hidden = !told.mystery || told.named;
  if (!name.hidden) {
    if (!name.firstChild)
      name.append(
        el("p", { className: "question", textContent: "Which bug is it?" }),
        el(
          "div",
          { className: "guesses" },
          ...lessons.bugs.map((each) => button(each.title, () => guess({ mistake: each.name }))),
        ),
        paragraph("", "clue"),
        el(
          "p",
          {},
          button("Show the answer", () => guess({ tell: true }), "", "quiet tell"),
        ),
      );
    put(name.querySelector(".clue"), guessed.name || "");
  }
  line.hidden = !told.named || told.found;
  if (!line.hidden) {
    const source = result.source,
      key = bug.id + told.name;
    if (line.dataset.key !== key) {
      line.dataset.key = key;
      line.replaceChildren(
        paragraph(
          (told.mystery ? "Correct: " + told.title + ". " : "") +
            "Below is the correct source. Which line differs in the buggy model?",
          "question",
        ),
        paragraph(source.file, "file"),
        el(
          "ol",
          { className: "source", start: source.first },
          ...source.lines.map((text, i) =>
            el(
              "li",
              { value: source.first + i },
              button(text || " ", () => guess({ line: i }), "Line " + (source.first + i), "line"),
            ),
          ),
        ),
        paragraph("", "clue"),
        el(
          "p",
          {},
          button("Show the answer", () => guess({ tell: true }), "", "quiet tell"),
        ),
      );
    }
    put(line.querySelector(".clue"), guessed.line || "");
  }
  const solved = $(".solved");
  solved.hidden = !told.found;
  if (told.found && solved.dataset.key !== bug.id) {
    solved.dataset.key = bug.id;
    solved.replaceChildren(
      el("p", { className: "verdict ok", textContent: told.title }),
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
      paragraph(told.why),
      paragraph("Found in: " + told.met_in + ".", "hint"),
    );
  }
}
