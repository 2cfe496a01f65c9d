// A curve in the size of a word.
import { html } from "../../vendor/preact.js";
import { resolveColor } from "../palette.js";

const WIDTH = 100;
const HEIGHT = 24;

/**
 * Curves of fractions, without axes.
 * @param {{ curves: [number, number][][], color?: string }} props positions and values. Without
 *   `color`, each curve has that of its place.
 */
export function Sparkline({ curves, color }) {
  const end = Math.max(...curves.flat().map(([position]) => position)),
    toPoint = (/** @type {[number, number]} */ [position, value]) =>
      `${(WIDTH * position) / end},${(1 - value) * (HEIGHT - 2) + 1}`;
  return html`<svg
    class="sparkline"
    viewBox="0 0 ${WIDTH} ${HEIGHT}"
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    ${curves.map(
      (curve, index) =>
        html`<polyline
          key=${index}
          points=${curve.map(toPoint).join(" ")}
          fill="none"
          stroke=${color ?? resolveColor(index)}
          vector-effect="non-scaling-stroke"
        />`,
    )}
  </svg>`;
}
