// The state of the tab, and its requests. Components read the signals, and the browser stores the
// user's progress.
import { signal } from "../vendor/preact.js";
import { requestOrError } from "../shared/api.js";
import { createStorage } from "../shared/storage.js";
import { store } from "../shared/store.js";

const storage = createStorage("transformer-playground-learn");
export const saveLocal = storage.saveLocal;
export const storedState = /** @type {any} */ (storage.storedState);

/** The parts of the tab. */
const SECTIONS = ["start", "tour", "bugs", "teach"];
export const RANDOM_BUG = "random";
/** In the list of bugs: the bug of a link, whose name is hidden. */
export const LINKED_BUG = "linked";

/** The lessons, the bugs and the limits of the server; null until it has responded. */
export const catalog = signal(/** @type {any} */ (null));
/** The error of the whole tab, for example of a link. */
export const tabError = signal("");
export const section = signal("start");
export const lessonName = signal("");
/** The state of each lesson by its name: {guess, options, job, result}. */
export const lessonStates = signal(/** @type {Record<string, any>} */ ({}));
/** The request of the bug exercise, with the id and the result of its job. */
export const bugState = signal(/** @type {any} */ ({ name: RANDOM_BUG, seed: 0, steps: 0 }));

export function showSection(name) {
  section.value = name;
  saveLocal("section", name);
}

export function openLesson(name) {
  showSection("tour");
  lessonName.value = name;
  saveLocal("lesson", name);
}

/** Restore the progress that this browser has stored. */
export function restoreProgress() {
  const { bug, lesson, lessons, section: stored } = storedState,
    isKnownBug = bug && [RANDOM_BUG, ...catalog.value.bugs.map((each) => each.name)];
  if (lessons && typeof lessons === "object") lessonStates.value = lessons;
  if (SECTIONS.includes(stored)) section.value = stored;
  const known = catalog.value.lessons.map((each) => each.name);
  lessonName.value = known.includes(lesson) ? lesson : known[0];
  const { seed, steps } = catalog.value;
  bugState.value = { name: RANDOM_BUG, seed, steps };
  if (isKnownBug?.includes(bug.name)) bugState.value = { ...bugState.value, ...bug };
}

/** Return the date of this place as in 2026-11-27. @param {Date} date */
export const toDay = (date) =>
  [date.getFullYear(), date.getMonth() + 1, date.getDate()]
    .map((part) => String(part).padStart(2, "0"))
    .join("-");

/** Return whether a text is a date up to today. @param {string} text */
const isDay = (text) =>
  /^20\d\d-\d\d-\d\d$/.test(text) && !isNaN(Date.parse(text)) && text <= toDay(new Date());

/**
 * Read what a link opens: a section, a lesson with its options, or a bug.
 * @param {any} lists the catalog
 * @param {URLSearchParams} params of the address
 * @returns {{section?: string, lesson?: string, options?: any, bug?: any, day?: string,
 *   class?: string, error?: string}}
 */
export function readLink(lists, params) {
  const name = params.get("learn"),
    bug = params.get("bug"),
    integer = (key) => (/^\d{1,9}$/.test(params.get(key) ?? "") ? Number(params.get(key)) : null);
  if (name !== null) {
    const lesson = lists.lessons.find((each) => each.name === name);
    if (lesson) return { section: "tour", lesson: name, options: readOptions(lesson, params) };
    if (SECTIONS.includes(name)) return { section: name };
    const known = lists.lessons.map((each) => each.name).join(", ");
    return {
      error:
        `The link contains the unknown lesson ${name.slice(0, 40)}. ` +
        `Available lessons: ${known}.`,
    };
  }
  const code = params.get("class");
  if (code !== null) return { section: "tour", class: code };
  const day = params.get("day");
  if (day !== null && isDay(day)) return { section: "bugs", day };
  if (day !== null)
    return { section: "bugs", error: `The link contains no day with a bug: ${day.slice(0, 40)}.` };
  if (bug === null) return {};
  if (bug !== RANDOM_BUG && !lists.bugs.some((each) => each.name === bug)) {
    const error = `The link contains the unknown bug ${bug.slice(0, 40)}. Select one below.`;
    return { section: "bugs", error };
  }
  const steps = Math.min(lists.max_steps, Math.max(20, integer("steps") ?? lists.steps));
  const request = { name: bug, seed: integer("seed") ?? 0, steps };
  return { section: "bugs", bug: { ...request, is_hidden: bug !== RANDOM_BUG } };
}

function readOptions(lesson, params) {
  const options = /** @type {Record<string, any>} */ ({});
  for (const { name, choices } of lesson.options ?? []) {
    const value = params.get(name);
    if (value !== null && (!choices.length || choices.includes(value)))
      options[name] = value.slice(0, 40);
  }
  const seed = params.get("seed") ?? "";
  if (/^\d{1,9}$/.test(seed)) options.seed = Number(seed);
  return options;
}

/** Send a request; an error is in the response. */
export const requestLesson = (name, payload = {}) =>
  requestOrError("lessons/" + name, { owner: store.owner.value, ...payload });

/**
 * Format an expected duration; without comparable runs on this machine, it is that of two cores.
 * @param {{ seconds: number, is_measured?: boolean }} estimate
 */
export function formatEstimate({ seconds, is_measured: isMeasured }) {
  const duration =
    seconds < 90 ? Math.max(1, Math.round(seconds)) + " s" : Math.round(seconds / 60) + " min";
  return `about ${duration}${isMeasured ? "" : " on two cores"}`;
}
