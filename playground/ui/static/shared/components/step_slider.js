import { html } from "../../vendor/preact.js";
import { nearestIndex } from "../store.js";

/** @type {Record<string, number>} */
const KEY_MOVES = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };

/**
 * The steps with stored weights, on an axis of steps. The arrow keys move from one to the next.
 * @param {{ steps: number[], step: number | null, onStep: (step: number | null) => void,
 *   min?: number, max?: number, latest?: number, [attribute: string]: any }} props `step` is null
 *   for the latest one, which may be after the last stored one
 */
export function StepSlider({
  steps,
  step,
  onStep,
  min = steps[0],
  max = steps[steps.length - 1],
  latest = max,
  ...attributes
}) {
  const last = steps.length - 1,
    index = step === null ? last : nearestIndex(steps, step);
  const select = (/** @type {number} */ next) =>
    onStep(next < last ? steps[Math.max(0, next)] : null);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const move = KEY_MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    select(index + move);
  };
  return html`<input
    type="range"
    min=${min}
    max=${max}
    value=${step === null ? latest : steps[index]}
    onKeyDown=${onKeyDown}
    onInput=${(/** @type {any} */ event) =>
      select(nearestIndex(steps, Number(event.currentTarget.value)))}
    ...${attributes}
  />`;
}
