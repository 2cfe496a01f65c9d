import { setMessage } from "../shared/common.js";
import { createSegmentedControl, setPressed } from "../shared/dom.js";
import { openBug, renderBug } from "./bug_exercise.js";
import { isActive, lessonState, openLesson, renderLesson } from "./lessons.js";
import { saveLocal } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export const SECTIONS = [
  ["tour", "Lessons", "Eight lessons: predict, measure, explain"],
  ["bugs", "Find the bug", "A copy of the model with a bug"],
  ["teach", "Teach", "Links, lesson plans and running a class"],
];
export const ACTIVE_STATUSES = ["training", "waiting", "measuring"];

export function buildSections() {
  $(".parts").replaceChildren(
    createSegmentedControl(SECTIONS, state.currentSection, showSection, "Parts of this tab"),
  );
}
export function showSection(name) {
  state.currentSection = name;
  saveLocal("part", state.currentSection);
  setPressed($(".parts .choice"), state.currentSection);
  for (const [name] of SECTIONS) $("section." + name).hidden = name !== state.currentSection;
  redrawSection();
}
export function redrawSection() {
  if (state.currentSection === "tour") renderLesson();
  if (state.currentSection === "bugs") renderBug();
}

// Open what a link selects: a lesson with its options, or a bug with its seed.
export function applyLinkState() {
  const params = new URLSearchParams(location.search),
    number = (name) => (/^\d{1,9}$/.test(params.get(name) || "") ? +params.get(name) : null);
  if (params.has("learn")) {
    const stop = state.catalog.stops.find((each) => each.name === params.get("learn"));
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
        state.catalog.stops.map((each) => each.name).join(", ") +
        ".",
      "error",
    );
  }
  if (params.has("bug")) {
    if (
      params.get("bug") === "mystery" ||
      state.catalog.bugs.some((each) => each.name === params.get("bug"))
    ) {
      openBug({
        name: params.get("bug"),
        seed: number("seed") ?? 0,
        steps: Math.min(
          state.catalog.max_steps,
          Math.max(20, number("steps") ?? state.catalog.steps),
        ),
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
