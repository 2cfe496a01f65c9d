// The Learn tab: lessons, the exercise Find the bug, and a page for teachers. The server trains and
// measures. The tab polls and draws the results, and stores the user's progress in the browser.
import { sleep } from "../shared/api.js";
import { setMessage, sleepWhileHidden } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { takeQueryParam } from "../shared/links.js";
import { buildBugs, pollBug } from "./bug_exercise.js";
import { buildLessons, pollLesson } from "./lessons.js";
import { requestLesson, storedState } from "./requests.js";
import { applyLinkState, buildSections, redrawSection, SECTIONS, showSection } from "./sections.js";
import { state } from "./state.js";
import { buildTeaching } from "./teaching.js";
import { $, attach, root } from "./view.js";

let nextPollAt = 0;

function onValueChange(value) {
  state.owner = value.owner || "";
}
async function init() {
  const response = await requestLesson("catalog");
  if (response.error) {
    setMessage($(".learn-note"), formatMessage(response.error), "error");
    await sleep(2000);
    return;
  }
  setMessage($(".learn-note"), "");
  state.catalog = response;
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
    ...state.catalog.stops.flatMap((stop) => stop.options.map((option) => option.name)),
  ])
    takeQueryParam(name); // a reload shows the current state, not that of the link
  showSection(
    ofLink || (SECTIONS.some(([name]) => name === storedState.part) ? storedState.part : "tour"),
  );
}
let lastAppearance = null;
async function pollLoop() {
  for (let round = 0; root.isConnected || round < 5; round++) {
    await sleepWhileHidden(200);
    if (!state.owner || !root.offsetParent || document.hidden) continue;
    if (!state.catalog) {
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

// Show the tab in the element of its Gradio component.
export default async function main(component) {
  await attach(component, onValueChange);
  pollLoop();
}
