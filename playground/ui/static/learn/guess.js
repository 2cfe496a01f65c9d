// The guess of a lesson: a curve to draw, or a mark to move on an axis. What is measured grows over
// it, and the guesses of a class are thin lines behind it.
import { html, useRef, useState } from "../vendor/preact.js";
import { formatCount, formatInteger } from "../shared/format.js";

const MAX_INTERVALS = 20; // between the points of a curve
const KEY_STEP = 5; // percent
const FIRST_VALUE = 50; // percent, of a curve that the keyboard begins

/** Return the x values of a curve. @param {{ low: number, high: number }} lesson */
export function listXs({ low, high }) {
  const n = Math.min(high - low, MAX_INTERVALS);
  return Array.from({ length: n + 1 }, (_, i) => low + (i * (high - low)) / n);
}

/**
 * Return the value of a line at x: between two points on the line through them, outside them that
 * of the nearest one.
 */
function interpolate(xs, ys, x) {
  const after = xs.findIndex((each) => each >= x);
  if (after <= 0) return ys[after === 0 ? 0 : ys.length - 1];
  const share = (x - xs[after - 1]) / (xs[after] - xs[after - 1]);
  return ys[after - 1] + share * (ys[after] - ys[after - 1]);
}

/**
 * Return a curve without gaps: points that were not drawn are between drawn ones.
 * @param {(number | null)[]} points
 * @returns {number[]}
 */
export function fillGaps(points) {
  const at = points.flatMap((value, i) => (value === null ? [] : [i])),
    values = at.map((i) => /** @type {number} */ (points[i]));
  return points.map((_, i) => Math.round(interpolate(at, values, i)));
}

/**
 * Draw a straight line from one point of a curve to another.
 * @param {(number | null)[]} points
 * @param {{ index: number, value: number }} from
 * @param {{ index: number, value: number }} to
 */
export function drawLine(points, from, to) {
  const [first, last] = from.index <= to.index ? [from, to] : [to, from],
    ends = [first.index, last.index],
    values = [first.value, last.value];
  return points.map((value, i) =>
    i === to.index
      ? to.value
      : i >= first.index && i <= last.index
        ? Math.round(interpolate(ends, values, i))
        : value,
  );
}

/**
 * Return the mean distance of a guessed curve from a measured line, in percentage points.
 * @param {{ low: number, high: number }} lesson
 * @param {(number | null)[]} points
 * @param {{ xs: number[], ys: number[] }} line its values are fractions
 */
export function meanDistance(lesson, points, { xs, ys }) {
  const guessed = fillGaps(points),
    grid = listXs(lesson),
    distances = xs.map((x, i) => Math.abs(interpolate(grid, guessed, x) - 100 * ys[i]));
  return distances.reduce((sum, each) => sum + each, 0) / distances.length;
}

/** Return the measured lines of a curve; the last one is what the guess is about. */
export const measuredLines = (result) =>
  result?.figures.find((figure) => figure.kind === "curves")?.series ?? [];

/** Return how far a guess is from the result: null for a choice, and without a measured value. */
function distanceOf(lesson, guess, result) {
  if (lesson.kind === "curve") return meanDistance(lesson, guess, measuredLines(result).at(-1));
  return lesson.kind === "choice" || result.value === null ? null : Math.abs(guess - result.value);
}

/** Return whether a guess agrees with the result, within the tolerance of the lesson. */
export function isNear(lesson, guess, result) {
  const distance = distanceOf(lesson, guess, result);
  return distance === null ? guess === result.value : distance <= lesson.tolerance;
}

/** Compare a guess with the result, in a sentence. */
export function describeScore(lesson, guess, result) {
  const { kind, unit } = lesson,
    distance = distanceOf(lesson, guess, result),
    mark = isNear(lesson, guess, result) ? "✓ " : "";
  if (result.value === null && kind !== "curve") return "There is no measured value.";
  if (distance === null) return mark ? "✓ Right." : "Not this time.";
  const noun = kind === "curve" || unit === "%" ? "point" : unit,
    amount = formatCount(Math.round(distance), noun, noun.replace(/y$/, "ie") + "s");
  return `${mark}${kind === "curve" ? "On average " : ""}${amount} away.`;
}

/** Return the path of a line in a plot of 100 × 100. */
function drawPath({ low, high }, xs, ys) {
  const points = xs.map((x, i) => `${(100 * (x - low)) / (high - low)},${100 - ys[i]}`);
  return points.length ? "M" + points.join("L") : "";
}

/** Return the path of a guess: a curve, or a vertical line. */
function guessPath(lesson, guess) {
  return lesson.kind === "curve"
    ? drawPath(lesson, listXs(lesson), fillGaps(guess))
    : drawPath(lesson, [guess, guess], [0, 100]);
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Return where in the plot a pointer is, as fractions from the lower left corner. */
function locate({ clientX, clientY, currentTarget }) {
  const { bottom, height, left, width } = currentTarget.getBoundingClientRect();
  return [clamp((clientX - left) / width, 0, 1), clamp((bottom - clientY) / height, 0, 1)];
}

/** The pointer and the keys on the plot of a curve. */
function useCurve(lesson, guess, onChange) {
  const xs = listXs(lesson),
    last = xs.length - 1,
    previous = useRef(/** @type {any} */ (null)),
    [index, setIndex] = useState(0),
    points = guess ?? xs.map(() => null),
    value = guess && fillGaps(guess)[index];
  const set = (from, to) => {
    setIndex(to.index);
    onChange(drawLine(points, from, to));
  };
  const onPoint = (event, isFirst) => {
    const [x, y] = locate(event),
      to = { index: Math.round(x * last), value: Math.round(100 * y) };
    set(isFirst ? to : previous.current, to);
    previous.current = to;
  };
  const onKey = (key) => {
    const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last },
      change = { ArrowUp: KEY_STEP, ArrowDown: -KEY_STEP }[key];
    if (key in moves) setIndex(clamp(moves[key], 0, last));
    else if (change) {
      const to = { index, value: clamp((value ?? FIRST_VALUE) + change, 0, 100) };
      set(to, to);
    } else return false;
    return true;
  };
  const at = `${lesson.unit} ${formatInteger(xs[index])}`;
  return { onPoint, onKey, value, x: xs[index], range: [0, 100], text: `${at}: ${value ?? "–"} %` };
}

/** The pointer and the keys on the axis of a number. */
function useMark({ low, high, unit }, guess, onChange) {
  const onPoint = (event) => onChange(Math.round(low + locate(event)[0] * (high - low)));
  const onKey = (key) => {
    const from = guess ?? Math.round((low + high) / 2),
      steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: low - from };
    const step = { ...steps, End: high - from }[key];
    if (step !== undefined) onChange(clamp(from + step, low, high));
    return step !== undefined;
  };
  const text = unit === "%" ? `${guess} %` : `${unit} ${guess}`;
  return { onPoint, onKey, value: guess, x: guess, range: [low, high], text };
}

const TICKS = [0, 0.25, 0.5, 0.75, 1];

/** The labels of the axes; the first one of a curve names the unit. */
function Axes({ lesson: { kind, low, high, unit } }) {
  const hasAll = high - low <= MAX_INTERVALS,
    xs = hasAll ? listXs({ low, high }) : TICKS.map((share) => low + share * (high - low)),
    place = (x) => `${(100 * (x - low)) / (high - low)}%`;
  const format = (x, i) =>
    unit === "%" ? `${x} %` : i || kind === "number" ? formatInteger(x) : `${unit} ${x}`;
  return html`${
    kind === "curve" &&
    TICKS.map((y) => html`<span class="y" style=${{ bottom: 100 * y + "%" }}>${100 * y} %</span>`)
  }
  ${xs.map((x, i) => html`<span class="x" style=${{ left: place(x) }}>${format(x, i)}</span>`)}`;
}

/** @type {Record<string, object>} */
const STROKES = {
  grid: { stroke: "var(--pg-grid)", "stroke-width": 1 },
  cloud: { stroke: "var(--pg-quiet)", "stroke-opacity": 0.7, "stroke-width": 2 },
  other: { stroke: "var(--pg-quiet)", "stroke-width": 3 },
  measured: { stroke: "var(--pg-accent)", "stroke-width": 3 },
  guess: { stroke: "var(--pg-mark)", "stroke-width": 3, "stroke-dasharray": "7 4" },
  point: { stroke: "var(--pg-mark)", "stroke-width": 1, "stroke-dasharray": "2 3" },
};

const Line = ({ kind, d, ...props }) =>
  html`<path
    class=${kind}
    d=${d}
    fill="none"
    vector-effect="non-scaling-stroke"
    ...${STROKES[kind]}
    ...${props}
  />`;

function Lines({ lesson, guess, lines, value, cloud, point }) {
  const isCurve = lesson.kind === "curve",
    column = (x) => drawPath(lesson, [x, x], [0, 100]);
  return html`<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
    ${isCurve && TICKS.map((y) => html`<${Line} kind="grid" d=${`M0,${100 * y}H100`} />`)}
    ${cloud.map((each) => html`<${Line} kind="cloud" d=${guessPath(lesson, each)} />`)}
    ${point !== null && html`<${Line} kind="point" d=${column(point)} />`}
    ${guess !== null && html`<${Line} kind="guess" d=${guessPath(lesson, guess)} />`}
    ${value !== null && html`<${Line} kind="measured" d=${column(value)} />`}
    ${lines.map(({ kind, label, xs, ys }) => {
      const percents = ys.map((y) => 100 * y);
      return html`<${Line} key=${label} kind=${kind} d=${drawPath(lesson, xs, percents)} />`;
    })}
  </svg>`;
}

const Key = ({ kind, label }) =>
  html`<span class="pg-row">
    <svg width="22" height="8" aria-hidden="true"><${Line} kind=${kind} d="M0,4H22" /></svg>
    ${label}
  </span>`;

const Keys = ({ guess, lines, value, cloud, text }) =>
  html`<p class="pg-hint pg-row">
    ${guess !== null && html`<${Key} kind="guess" label="your guess" />`}
    ${cloud.length > 0 && html`<${Key} kind="cloud" label="the class" />`}
    ${value !== null && html`<${Key} kind="measured" label="measured" />`}
    ${lines.map((line) => html`<${Key} key=${line.label} ...${line} />`)} ${text}
  </p>`;

/**
 * The axes to draw on, with what was measured.
 * @param {{
 *   lesson: any,
 *   guess: any,
 *   onChange: (guess: any) => void,
 *   isLocked: boolean,
 *   measured?: { label: string, xs: number[], ys: number[] }[],
 *   value?: number | null,
 *   cloud?: any[],
 * }} props `measured` has lines, `value` is a number; `cloud` has the guesses of a class
 */
export function Guess({
  lesson,
  guess,
  onChange,
  isLocked,
  measured = [],
  value = null,
  cloud = [],
}) {
  const isCurve = lesson.kind === "curve",
    use = isCurve ? useCurve : useMark,
    input = use(lesson, guess, onChange),
    [isDrawing, setDrawing] = useState(false),
    canChange = guess !== null && !isLocked,
    last = measured.length - 1,
    lines = measured.map((line, i) => ({ ...line, kind: i === last ? "measured" : "other" }));
  const onPointerDown = (event) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrawing(true);
    input.onPoint(event, true);
  };
  const handlers = {
    onPointerDown,
    onPointerMove: (event) => isDrawing && input.onPoint(event, false),
    onLostPointerCapture: () => setDrawing(false),
    onKeyDown: (event) => input.onKey(event.key) && event.preventDefault(),
  };
  const shared = { lesson, guess, lines, value, cloud };
  return html`<div
      class="guess-plot"
      data-kind=${lesson.kind}
      role="slider"
      tabindex="0"
      aria-label=${"Your guess" + (isCurve ? ": exact match by " + lesson.unit : "")}
      aria-valuemin=${input.range[0]}
      aria-valuemax=${input.range[1]}
      aria-valuenow=${input.value ?? input.range[0]}
      aria-valuetext=${guess === null ? "no guess yet" : input.text}
      aria-disabled=${String(isLocked)}
      ...${isLocked ? {} : handlers}
    >
      <${Lines} ...${shared} point=${isCurve && canChange ? input.x : null} />
      <${Axes} lesson=${lesson} />
      ${
        guess === null &&
        !isLocked &&
        html`<span class="prompt">
          ${isCurve ? "Draw the curve that you expect" : "Click your guess on the axis"}
        </span>`
      }
    </div>
    <${Keys} ...${shared} text=${canChange ? input.text : ""} />`;
}
