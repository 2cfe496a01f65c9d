// The Learn tab: lessons, the bug of the day, and a page for teachers. The server trains and
// measures. The tab polls and draws the results, and stores the user's progress in the browser.
import { html, render } from "../vendor/preact.js";
import { sleep } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatMessage } from "../shared/format.js";
import { store } from "../shared/store.js";
import { createView } from "../shared/view.js";
import { BugExercise, openBug, resumeBug } from "./bug_exercise.js";
import { ClassBar, joinClass, resumeClass } from "./classroom.js";
import { exerciseOfDay } from "./daily_bug.js";
import { Lessons, openLinkedLesson, resumeLessons } from "./lessons.js";
import {
  bugState,
  catalog,
  lessonName,
  lessonStates,
  readLink,
  requestLesson,
  restoreProgress,
  section,
  showSection,
  storedState,
  tabError,
  toDay,
} from "./state.js";
import { Start } from "./start.js";
import { Teaching } from "./teaching.js";

const RETRY_MS = 2000;
const { attach, root } = createView("learn pg", [
  new URL("../shared/diagram/diagram.css", import.meta.url),
  new URL("./learn.css", import.meta.url),
]);
const SECTIONS = [
  { value: "start", label: "Start", title: "How a transformer works, in five minutes" },
  { value: "tour", label: "Lessons", title: "Guess, measure, explain" },
  {
    value: "bugs",
    label: "Daily bug",
    title: "A copy of the model with a bug, a new one every day",
  },
  { value: "teach", label: "For teachers", title: "A class, and links to exercises" },
];
const CONTENT = { start: Start, tour: Lessons, bugs: BugExercise, teach: Teaching };

function Learn() {
  const name = section.value;
  return html`<h2 class="pg-visually-hidden">Learn</h2>
    <${SegmentedControl}
      label="Parts of this tab"
      prefix="learn"
      options=${SECTIONS}
      value=${name}
      onChange=${showSection}
    />
    <${StatusMessage} class="learn-note" kind="error" text=${tabError.value} />
    <${ClassBar} />
    <section class=${name} role="tabpanel" aria-labelledby=${"learn-" + name}>
      ${catalog.value && html`<${CONTENT[name]} />`}
    </section>`;
}

/** What a link selects. The address does not keep it: a reload shows the current state. */
const learnView = {
  read: () => {
    const options = catalog.value.lessons.flatMap((/** @type {any} */ lesson) => lesson.options),
      names = ["class", "learn", "day", "bug", "seed", "steps", ...options.map(({ name }) => name)];
    return Object.fromEntries(names.map((name) => [name, null]));
  },
  link() {
    const { day, name, seed, steps } = bugState.value;
    if (section.value === "bugs") return day ? { day } : { bug: name, seed, steps };
    if (section.value !== "tour") return { learn: section.value };
    return { learn: lessonName.value, ...lessonStates.value[lessonName.value]?.options };
  },
  apply(/** @type {URLSearchParams} */ params) {
    const link = readLink(catalog.value, params);
    tabError.value = link.error ?? "";
    if (link.section) showSection(link.section);
    if (link.lesson) openLinkedLesson(link.lesson, link.options);
    if (link.bug) openBug(link.bug);
    if (link.class) joinClass(link.class);
    if (link.day) openBug(exerciseOfDay(link.day));
  },
};

async function start() {
  for (;;) {
    const response = await requestLesson("catalog");
    tabError.value = formatMessage(response.error);
    if (!response.error) {
      catalog.value = response;
      break;
    }
    await sleep(RETRY_MS);
  }
  restoreProgress();
  const { day } = bugState.value,
    today = toDay(new Date());
  if (!storedState.bug || (day && day !== today)) openBug(exerciseOfDay(today));
  resumeClass();
  store.addView("learn", learnView);
  resumeLessons();
  resumeBug();
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Learn} />`, root);
  await attach(panel);
  start();
}
