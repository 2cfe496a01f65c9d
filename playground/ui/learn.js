// The Learn tab: lessons, the exercise Find the bug, and a page for teachers. The server trains and
// measures. This script polls and draws the results, and stores the user's progress in the browser.
const root = $(".learn"),
  STORAGE_KEY = "transformer-playground-learn";
const SECTIONS = [
  ["tour", "Lessons", "Eight lessons: predict, measure, explain"],
  ["bugs", "Find the bug", "A copy of the model with a bug"],
  ["teach", "Teach", "Links, lesson plans and running a class"],
];
const ACTIVE_STATUSES = ["training", "waiting", "measuring"];
let owner = "",
  catalog = null,
  storedState = {},
  currentSection = "tour",
  nextPollAt = 0;

try {
  storedState = JSON.parse(localStorage.getItem(STORAGE_KEY) || "{}") || {};
} catch (error) {
  /* the stored value is malformed */
}
function saveLocal(name, value) {
  storedState[name] = value;
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(storedState));
  } catch (error) {
    /* storage is full or not available */
  }
}
async function requestLesson(name, payload = {}, timeoutMs = 20000) {
  try {
    return await request("lessons/" + name, { owner, ...payload }, timeoutMs);
  } catch (error) {
    return { error: NO_RESPONSE, lost: true };
  }
}
const setText = (box, text) => {
  if (box.textContent !== text) box.textContent = text;
  return box;
};
const formatShare = (x) => (x === 1 ? "100 %" : +Math.min(99.9, 100 * x).toPrecision(3) + " %");
const formatSpread = () => ""; // no bands here
const createButton = (text, act, title = "", className = "quiet") => {
  const made = el("button", { type: "button", className, textContent: text, title });
  made.addEventListener("click", act);
  return made;
};
const createParagraph = (text, className = "") => el("p", { className, textContent: text });

function buildSections() {
  $(".parts").replaceChildren(
    createSegmentedControl(SECTIONS, currentSection, showSection, "Parts of this tab"),
  );
}
function showSection(name) {
  currentSection = name;
  saveLocal("part", currentSection);
  setPressed($(".parts .choice"), currentSection);
  for (const [name] of SECTIONS) $("section." + name).hidden = name !== currentSection;
  redrawSection();
}
function redrawSection() {
  if (currentSection === "tour") renderLesson();
  if (currentSection === "bugs") renderBug();
}

// Open what a link selects: a lesson with its options, or a bug with its seed.
function applyLinkState() {
  const params = new URLSearchParams(location.search),
    number = (name) => (/^\d{1,9}$/.test(params.get(name) || "") ? +params.get(name) : null);
  if (params.has("learn")) {
    const stop = catalog.stops.find((each) => each.name === params.get("learn"));
    if (stop) {
      const own = lessonState(stop.name),
        before = JSON.stringify(own.options);
      delete own.options.seed; // from an earlier link
      for (const option of stop.options) {
        const value = params.get(option.name);
        if (value !== null && (!option.choices.length || option.choices.includes(value)))
          own.options[option.name] = value.slice(0, 40);
      }
      if (number("seed") !== null) own.options.seed = number("seed");
      if (JSON.stringify(own.options) !== before && !isActive(own)) {
        delete own.response;
        delete own.id;
      } // the stored result belongs to other options
      openLesson(stop.name);
      return "tour";
    }
    if (SECTIONS.some(([name]) => name === params.get("learn"))) return params.get("learn");
    setMessage(
      $(".learn-note"),
      "The link contains the unknown lesson " +
        params.get("learn").slice(0, 40) +
        ". Available lessons: " +
        catalog.stops.map((each) => each.name).join(", ") +
        ".",
      "error",
    );
  }
  if (params.has("bug")) {
    if (
      params.get("bug") === "mystery" ||
      catalog.bugs.some((each) => each.name === params.get("bug"))
    ) {
      openBug({
        name: params.get("bug"),
        seed: number("seed") ?? 0,
        steps: Math.min(catalog.max_steps, Math.max(20, number("steps") ?? catalog.steps)),
      });
      return "bugs";
    }
    setMessage(
      $(".learn-note"),
      "The link contains the unknown bug " + params.get("bug").slice(0, 40) + ". Select one below.",
      "error",
    );
    return "bugs";
  }
  return "";
}

// ---------------------------------------------------------------- start
function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
}
async function init() {
  const response = await requestLesson("catalog");
  if (response.error) {
    setMessage($(".learn-note"), formatMessage(response.error), "error");
    await sleep(2000);
    return;
  }
  setMessage($(".learn-note"), "");
  catalog = response;
  buildSections();
  buildLessons();
  buildBugs();
  buildTeaching();
  const ofLink = applyLinkState();
  for (const name of [
    "learn",
    "bug",
    "seed",
    "steps",
    ...catalog.stops.flatMap((stop) => stop.options.map((option) => option.name)),
  ])
    takeQueryParam(name); // a reload shows the current state, not that of the link
  showSection(
    ofLink || (SECTIONS.some(([name]) => name === storedState.part) ? storedState.part : "tour"),
  );
}
let lastAppearance = null;
async function pollLoop() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(200);
    if (!owner || !element.offsetParent || document.hidden) continue;
    if (!catalog) {
      await init();
      continue;
    }
    const now = document.body.classList.contains("dark") + "/" + root.clientWidth;
    if (lastAppearance !== now) {
      lastAppearance = now;
      redrawSection();
    } // the theme or the width changed
    if (Date.now() >= nextPollAt) {
      nextPollAt = Date.now() + 500;
      await pollLesson();
      await pollBug();
    }
  }
}
