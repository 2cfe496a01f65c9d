// The held-out samples of the displayed step.
import { TokenStrip, TokenText } from "../shared/components/token_strip.js";
import { store } from "../shared/store.js";
import { html, useRef } from "../vendor/preact.js";
import { embeddedView, state } from "./state.js";

const TITLE = "Unseen inputs";

/** @typedef {{ source: string[], target: string[], prediction: string[] }} Sample */

/** @param {{ sample: Sample }} props */
function SampleItem({ sample: { source, target, prediction } }) {
  const text = source.join(" ");
  return html`<li>
    <button
      type="button"
      class="sample"
      aria-label=${"Try " + text}
      onClick=${() => store.setInput(text)}
    >
      <${TokenText} tokens=${source} />
    </button>
    <span class="arrow" aria-hidden="true">→</span>
    <${TokenStrip} label="Prediction" tokens=${prediction} targets=${target} />
  </li>`;
}

/** The samples in one line, as many as fit. */
export function Samples() {
  const latest = useRef(/** @type {any} */ (null)),
    snapshot = (latest.current = state.displayedSnapshot ?? latest.current), // the previous model's
    samples = /** @type {Sample[]} */ (snapshot?.samples ?? []),
    rightCount = samples.filter((each) => each.prediction.join() === each.target.join()).length;
  if (store.privacy.value)
    return html`<p class="private pg-hint" data-part="samples" hidden=${!embeddedView}>
      ${store.privacy.value}
    </p>`;
  return html`<section class="samples-box" data-part="samples" aria-label=${TITLE}>
    <h3 title="Sequences outside the training set. Wrong predicted tokens are underlined.">
      ${TITLE}
    </h3>
    <output class="value right-of" aria-live="off">
      ${
        snapshot &&
        `${rightCount} of ${samples.length} right` +
          (state.viewedStep === null ? "" : ` at step ${snapshot.step}`) +
          (state.displayedOff.length ? " with all parts on" : "")
      }
    </output>
    <ul class="samples" hidden=${state.displayedOff.length > 0}>
      ${samples.map((sample, i) => html`<${SampleItem} key=${i} sample=${sample} />`)}
    </ul>
  </section>`;
}
