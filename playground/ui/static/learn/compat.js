// Names of version 0.2.0 in links and in the stored progress, accepted for one release.

const RESULT_KEYS = {
  answer: "value",
  chosen: "selected",
  pictures: "figures",
  trained: "max_trained_length",
  what: "metric",
  written: "is_generated",
  x: "x_label",
};
const VALUES = { answers: "outputs", share: "exact_match" };

/** Return the present name of a lesson or a bug. */
export const upgradeName = (name) =>
  name === "mystery" ? "random" : String(name).replace(/^stop-(?=\d+$)/, "lesson-");

/** Return a figure, or a part of one, with the present names. */
function upgradeFigure(value) {
  if (Array.isArray(value)) return value.map(upgradeFigure);
  if (value === null || typeof value !== "object") return VALUES[value] ?? value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => {
      const name = key === "right" ? "target" : (RESULT_KEYS[key] ?? key);
      return [name, upgradeFigure(each)];
    }),
  );
}

function upgradeResult({ right, ...result }) {
  const figures = upgradeFigure(result.pictures);
  return { ...result, figures, value: result.answer, is_correct: right };
}

function upgradeLessonState(state) {
  const result = state?.response?.result;
  if (!result || !("pictures" in result)) return state;
  return { ...state, response: { ...state.response, result: upgradeResult(result) } };
}

/** Return the progress that a browser has stored, with the present names. */
export function upgradeProgress({
  bug,
  part,
  section = part,
  stop,
  lesson = stop,
  stops,
  lessons,
}) {
  const stored = lessons ?? stops,
    isObject = stored && typeof stored === "object";
  return {
    bug: bug && { ...bug, name: upgradeName(bug.name) },
    section,
    lesson: lesson && upgradeName(lesson),
    lessons: isObject
      ? Object.fromEntries(
          Object.entries(stored).map(([name, state]) => [
            upgradeName(name),
            upgradeLessonState(state),
          ]),
        )
      : null,
  };
}
