// The Learn tab: lessons, the exercise Find the bug, and a page for teachers. The server trains and
// measures. The tab polls and draws the results, and stores the user's progress in the browser.
import { html, render } from "../vendor/preact.js";
import { sleep } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { Tabs } from "../shared/components/tabs.js";
import { formatMessage } from "../shared/format.js";
import { takeQueryParam } from "../shared/links.js";
import { BugExercise, openBug, resumeBug } from "./bug_exercise.js";
import { Lessons, openLinkedLesson, resumeLessons } from "./lessons.js";
import { requestLesson } from "./measurement.js";
import { catalog, readLink, restoreProgress, section, showSection, tabError } from "./state.js";
import { Teaching } from "./teaching.js";
import { attach, root } from "./view.js";

const RETRY_MS = 2000;
const SECTIONS = [
  { value: "tour", label: "Lessons", title: "Predict, measure, explain" },
  { value: "bugs", label: "Find the bug", title: "A copy of the model with a bug" },
  { value: "teach", label: "Teach", title: "Links to exercises for a class" },
];
const CONTENT = { tour: Lessons, bugs: BugExercise, teach: Teaching };

function Learn() {
  const name = section.value;
  return html`<h2 class="pg-visually-hidden">Learn</h2>
    <${Tabs}
      label="Parts of this tab"
      prefix="learn"
      options=${SECTIONS}
      value=${name}
      onChange=${showSection}
    />
    <${StatusMessage} class="learn-note" kind="error" text=${tabError.value} />
    <section class=${name} role="tabpanel" aria-labelledby=${"learn-" + name}>
      ${catalog.value && html`<${CONTENT[name]} />`}
    </section>`;
}

/** Open what the link selects. A later reload shows the current state, not that of the link. */
function openLink() {
  const link = readLink(catalog.value, location.search);
  tabError.value = link.error ?? "";
  if (link.section) showSection(link.section);
  if (link.lesson) openLinkedLesson(link.lesson, link.options);
  if (link.bug) openBug(link.bug);
  const options = catalog.value.lessons.flatMap((lesson) =>
    lesson.options.map((each) => each.name),
  );
  for (const name of ["learn", "bug", "seed", "steps", ...options]) takeQueryParam(name);
}

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
  openLink();
  resumeLessons();
  resumeBug();
}

/** Show the tab in its panel. @param {Element} panel */
export default async function main(panel) {
  render(html`<${Learn} />`, root);
  await attach(panel);
  start();
}
