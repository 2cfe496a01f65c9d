// What switches parts of a model off, and what that does, and the arrow keys between heads: in the
// diagram and on an exported page.
import { Button } from "../components/buttons.js";
import { shareInterval } from "../../engine/parts.js";
import { formatWholePercent } from "../format.js";
import { html } from "../../vendor/preact.js";
/** @import { Component } from "../../engine/types.js" */

/**
 * The switches of a diagram.
 * @typedef {{ isOff: (part: Component) => boolean, toggle: (parts: Component[]) => void,
 *   nameOf: (part: Component) => string }} Switches
 */

/**
 * @param {{ parts: Component[], name: string, isOff: boolean, tabindex?: number,
 *   toggle: Switches["toggle"] }} props
 */
export const Switch = ({ parts, name, isOff, tabindex, toggle }) =>
  html`<button
    type="button"
    role="switch"
    class="part-switch"
    tabindex=${tabindex}
    aria-checked=${String(!isOff)}
    aria-label=${name}
    title="Switch ${isOff ? "on" : "off"}: ${name}"
    onClick=${() => toggle(parts)}
  />`;

/** @typedef {"zero" | "mean"} Method */

const METHODS = /** @type {Record<Method, string>} */ ({
  zero: "Off: its output is 0, which other parts may not know.",
  mean: "Off: its output is its mean, which other parts know.",
});

const NOT_NEEDED = "Not needed for this input. Try the switch of a whole row.";

/**
 * @param {Component[]} off @param {Switches["nameOf"]} nameOf
 * @param {boolean | null} isRight null until the output is known
 */
function describeState(off, nameOf, isRight) {
  if (!off.length) return "All parts are on.";
  const what = off.length > 1 ? `${off.length} parts are off` : `${nameOf(off[0])} is off`;
  return what + (isRight === null ? "." : `: this output is ${isRight ? "still right" : "wrong"}.`);
}

/** @param {{ score: { right: number, measured: number } | null }} props */
function Score({ score }) {
  if (!score) return html`<p class="switch-score"></p>`;
  const { right, measured } = score,
    [low, high] = shareInterval(right, measured).map(formatWholePercent);
  return html`<p class="switch-score">
    <b>${right} of ${measured}</b> unseen inputs right${" "}
    <small>95 % interval: ${low} to ${high}</small>
  </p>`;
}

/** @param {{ method: Method, onMethod: (method: Method) => void }} props */
const MethodChoice = ({ method, onMethod }) =>
  html`<fieldset class="switch-method">
    <legend>Off means</legend>
    ${Object.entries(METHODS).map(
      ([name, title]) =>
        html`<label key=${name} title=${title}>
          <input
            type="radio"
            name="method"
            checked=${method === name}
            onChange=${() => onMethod(/** @type {Method} */ (name))}
          />${name}
        </label>`,
    )}
  </fieldset>`;

/**
 * What is off, what that does to this output and to others, and what "off" means.
 * @param {{ off: Component[], nameOf: Switches["nameOf"], isRight: boolean | null,
 *   score: { right: number, measured: number } | null, method: Method, hasExamples: boolean,
 *   onMethod: (method: Method) => void, onReset: () => void }} props without examples, there is no
 *   score and no mean
 */
export const SwitchControls = ({ off, nameOf, isRight, score, hasExamples, ...props }) =>
  html`<div class="switch-controls">
    <p class="switch-state" role="status">${describeState(off, nameOf, isRight)}</p>
    <div class="switch-row">
      ${hasExamples && html`<${MethodChoice} ...${props} />`}
      <${Button} class="small" aria-disabled=${String(!off.length)} onClick=${props.onReset}>
        Switch all on
      <//>
    </div>
    ${hasExamples && html`<${Score} score=${score} />`}
    <p class="switch-hint">${off.length > 0 && (isRight ? NOT_NEEDED : METHODS[props.method])}</p>
  </div>`;

/** @type {Record<string, [number, number]>} */
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** @param {KeyboardEvent} event @param {HTMLElement} root */
export function moveFocus(event, root) {
  const direction = DIRECTIONS[event.key],
    button = /** @type {Element} */ (event.target).closest(".head");
  if (!direction || !button) return;
  event.preventDefault();
  const from = center(button),
    [dx, dy] = direction;
  let best = /** @type {any} */ (null),
    bestDistance = Infinity;
  for (const other of root.querySelectorAll(".head")) {
    const to = center(other),
      along = (to.x - from.x) * dx + (to.y - from.y) * dy,
      across = Math.abs((to.x - from.x) * dy) + Math.abs((to.y - from.y) * dx);
    if (along > 2 && along + 3 * across < bestDistance) {
      bestDistance = along + 3 * across;
      best = other;
    }
  }
  if (!best) return;
  best.focus();
  best.click();
}

/** @param {Element} element */
function center(element) {
  const box = element.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}
