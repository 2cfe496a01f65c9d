// The Learn tab: lessons, the exercise Find the bug, and a page for teachers. The server trains and
// measures. This script polls and draws the results, and stores the user's progress in the browser.
const root = $(".learn"),
  MEMORY = "transformer-playground-learn";
const PARTS = [
  ["tour", "Lessons", "Eight lessons: predict, measure, explain"],
  ["bugs", "Find the bug", "A copy of the model with a bug"],
  ["teach", "Teach", "Links, lesson plans and running a class"],
];
const UNDER_WAY = ["training", "waiting", "measuring"];
let owner = "",
  lessons = null,
  memory = {},
  part = "tour",
  dueAt = 0;

try {
  memory = JSON.parse(localStorage.getItem(MEMORY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function keep(name, value) {
  memory[name] = value;
  try {
    localStorage.setItem(MEMORY, JSON.stringify(memory));
  } catch (error) {
    /* storage is full or not available */
  }
}
async function ask(name, what = {}, within = 20000) {
  try {
    return await call("learn-" + name, { owner, ...what }, within);
  } catch (error) {
    return { error: "the server did not respond; try again", lost: true };
  }
}
const put = (box, text) => {
  if (box.textContent !== text) box.textContent = text;
  return box;
};
const share = (x) => (x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(3) + " %");
const between = () => ""; // no bands here
const button = (text, act, title = "", className = "quiet") => {
  const made = el("button", { type: "button", className, textContent: text, title });
  made.addEventListener("click", act);
  return made;
};
const paragraph = (text, className = "") => el("p", { className, textContent: text });

function buildParts() {
  $(".parts").replaceChildren(choice(PARTS, part, show, "Parts of this tab"));
}
function show(wanted) {
  part = wanted;
  keep("part", part);
  press($(".parts .choice"), part);
  for (const [name] of PARTS) $("section." + name).hidden = name !== part;
  redraw();
}
function redraw() {
  if (part === "tour") drawStop();
  if (part === "bugs") drawBug();
}

// Open what a link selects: a lesson with its options, or a bug with its seed.
function linked() {
  const asked = new URLSearchParams(location.search),
    number = (name) => (/^\d{1,9}$/.test(asked.get(name) || "") ? +asked.get(name) : null);
  if (asked.has("learn")) {
    const stop = lessons.stops.find((each) => each.name === asked.get("learn"));
    if (stop) {
      const own = stateOf(stop.name),
        before = JSON.stringify(own.options);
      delete own.options.seed; // from an earlier link
      for (const option of stop.options) {
        const value = asked.get(option.name);
        if (value !== null && (!option.choices.length || option.choices.includes(value)))
          own.options[option.name] = value.slice(0, 40);
      }
      if (number("seed") !== null) own.options.seed = number("seed");
      if (JSON.stringify(own.options) !== before && !going(own)) {
        delete own.told;
        delete own.id;
      } // the stored result belongs to other options
      openStop(stop.name);
      return "tour";
    }
    if (PARTS.some(([name]) => name === asked.get("learn"))) return asked.get("learn");
    note(
      $(".learn-note"),
      "The link contains the unknown lesson " +
        asked.get("learn").slice(0, 40) +
        ". Available lessons: " +
        lessons.stops.map((each) => each.name).join(", ") +
        ".",
      "error",
    );
  }
  if (asked.has("bug")) {
    if (
      asked.get("bug") === "mystery" ||
      lessons.bugs.some((each) => each.name === asked.get("bug"))
    ) {
      openBug({
        name: asked.get("bug"),
        seed: number("seed") ?? 0,
        steps: Math.min(lessons.most_steps, Math.max(20, number("steps") ?? lessons.steps)),
      });
      return "bugs";
    }
    note(
      $(".learn-note"),
      "The link contains the unknown bug " + asked.get("bug").slice(0, 40) + ". Select one below.",
      "error",
    );
    return "bugs";
  }
  return "";
}

// ---------------------------------------------------------------- start
function attach() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function start() {
  const told = await ask("lessons");
  if (told.error) {
    note($(".learn-note"), sentenceOf(told.error), "error");
    await sleep(2000);
    return;
  }
  note($(".learn-note"), "");
  lessons = told;
  buildParts();
  buildTour();
  buildBugs();
  buildTeach();
  const ofLink = linked();
  for (const name of [
    "learn",
    "bug",
    "seed",
    "steps",
    ...lessons.stops.flatMap((stop) => stop.options.map((option) => option.name)),
  ])
    ofAddress(name); // a reload shows the current state, not that of the link
  show(ofLink || (PARTS.some(([name]) => name === memory.part) ? memory.part : "tour"));
}
let dark = null;
async function goOn() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(200);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!lessons) {
      await start();
      continue;
    }
    const now = document.body.classList.contains("dark") + "/" + root.clientWidth;
    if (dark !== now) {
      dark = now;
      redraw();
    } // the theme or the width changed
    if (Date.now() >= dueAt) {
      dueAt = Date.now() + 500;
      await followStop();
      await followBug();
    }
  }
}
