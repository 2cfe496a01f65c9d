// The bug of the day: the same on every computer, with one clue after the other.
import { html } from "../vendor/preact.js";
import { Button, CopyButton } from "../shared/components/buttons.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { formatCount } from "../shared/format.js";
import { bugState, catalog, saveLocal, storedState, toDay } from "./state.js";

/** What a clue shows, in their order. */
export const CLUES = ["the training loss", "exact match", "output and scores", "attention"];
/** @type {Record<string, string>} */
const MARKS = { clue: "🟦", miss: "🟥", hit: "🟩", answer: "⬛" };
const N_DAYS = 6; // in the archive
const MS_PER_DAY = 86_400_000;
const STRIDE = 101; // a prime: all bugs occur before one returns

/** Return the exercise of a day. @param {string} day */
export function exerciseOfDay(day) {
  const { bugs, steps } = catalog.value,
    { name } = bugs[((Date.parse(day) / MS_PER_DAY) * STRIDE) % bugs.length];
  return { name, seed: Number(day.replaceAll("-", "")), steps, is_hidden: true, day };
}

/** @type {(day: string) => string[]} */
const marksOf = (day) => storedState.days?.[day] ?? [];

/** Add a mark to the result of the day: a clue, a wrong or the right name, or the answer. */
export function addMark(/** @type {string} */ mark) {
  const { day } = bugState.value;
  if (!day) return;
  saveLocal("days", { ...storedState.days, [day]: [...marksOf(day), mark] });
  bugState.value = { ...bugState.value };
}

const isFinished = (/** @type {string[]} */ marks) => /hit|answer/.test(marks.at(-1) ?? "");

/** Return the number of clues that the user may see; all of them outside the bug of a day. */
export function countClues() {
  const { day } = bugState.value,
    marks = day ? marksOf(day) : ["answer"];
  return isFinished(marks) ? CLUES.length : Math.min(1 + marks.length, CLUES.length);
}

/** @param {string[]} marks */
const drawMarks = (marks) => marks.map((mark) => MARKS[mark]).join("");

/** @param {string} day */
function describeResult(day) {
  const link = new URL(location.pathname, location.origin);
  link.searchParams.set("day", day);
  return `Transformer Playground, bug of ${day}: ${drawMarks(marksOf(day))}\n${link}`;
}

/** @param {string} day @param {Intl.DateTimeFormatOptions} options */
const formatDay = (day, options) =>
  new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" }).format(new Date(day));

/** @param {string[]} marks */
function describeMarks(marks) {
  const count = (/** @type {string} */ mark) => marks.filter((each) => each === mark).length,
    [misses, clues] = [count("miss"), count("clue")],
    parts = [
      ...(misses ? [formatCount(misses, "wrong name")] : []),
      ...(clues ? [formatCount(clues, "more clue")] : []),
    ],
    when = parts.length ? "after " + parts.join(" and ") : "at once";
  return marks.at(-1) === "hit" ? `Named ${when}.` : `Not named, ${when}.`;
}

/** @param {string[]} marks */
const formatOutcome = (marks) => (!isFinished(marks) ? "" : marks.at(-1) === "hit" ? " ✓" : " ✗");

/** The day, its result, and the days before. @param {{ open: (exercise: any) => void }} props */
export function DailyBug({ open }) {
  const { day } = bugState.value,
    today = Date.parse(toDay(new Date()));
  const days = Array.from({ length: N_DAYS }, (_, i) => {
    const value = new Date(today - i * MS_PER_DAY).toISOString().slice(0, 10),
      date = formatDay(value, { day: "numeric", month: "short" });
    return { value, label: date + formatOutcome(marksOf(value)) };
  });
  return html`<h3>
      ${
        day
          ? `Bug of ${formatDay(day, { weekday: "long", day: "numeric", month: "long" })}`
          : "Find the wrong line"
      }
    </h3>
    <p class="pg-buttons">
      <${SegmentedControl}
        label="Day"
        options=${days}
        value=${day}
        onChange=${(/** @type {string} */ value) => open(exerciseOfDay(value))}
      />
    </p>
    ${!bugState.value.result && html`<${DailyResult} />`}`;
}

/** The result of the day, below the questions or, without them, below the day. */
export function DailyResult() {
  const { day } = bugState.value,
    marks = marksOf(day);
  if (!isFinished(marks)) return null;
  return html`<p class="pg-buttons result">
    <b>${describeMarks(marks)}</b>
    <${CopyButton} label="Copy result" text=${() => describeResult(day)} />
  </p>`;
}

/** The button for one more clue. @param {{ result: any }} props */
export function NextClue({ result }) {
  const n = countClues(),
    clues = result.buggy.failure ? [CLUES[0], "the error"] : CLUES;
  if (n >= clues.length) return null;
  return html`<p class="pg-buttons">
    <${Button} class="next-clue" onClick=${() => addMark("clue")}>
      Clue ${n + 1} of ${clues.length}: ${clues[n]}
    <//>
  </p>`;
}
