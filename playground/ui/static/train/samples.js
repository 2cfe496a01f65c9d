// The held-out samples of the displayed step, and the scores by length.
import { Table } from "../shared/components/data_table.js";
import { TokenStrip, TokenText } from "../shared/components/token_strip.js";
import { formatInteger, formatPercent } from "../shared/format.js";
import { store } from "../shared/store.js";
import { html, useRef } from "../vendor/preact.js";
import { embeddedView, state } from "./state.js";

const TITLE = "Held-out samples";
const MAX_ROW_LENGTH = 12; // tokens; longer samples have two rows

/** @typedef {{ source: string[], target: string[], prediction: string[] }} Sample */

/** @param {{ sample: Sample }} props */
function SampleRow({ sample: { source, target, prediction } }) {
  const text = source.join(" ");
  return html`<tr>
    <td>
      <button
        type="button"
        class="sample"
        aria-label=${"Try " + text}
        onClick=${() => store.setInput(text)}
      >
        <${TokenText} tokens=${source} />
      </button>
    </td>
    <td>→</td>
    <td><${TokenStrip} label="Prediction" tokens=${prediction} targets=${target} /></td>
  </tr>`;
}

export function Samples() {
  const latest = useRef(/** @type {any} */ (null)),
    snapshot = (latest.current = state.displayedSnapshot ?? latest.current), // the previous model's
    samples = /** @type {Sample[]} */ (snapshot?.samples ?? []),
    rightCount = samples.filter((each) => each.prediction.join() === each.target.join()).length,
    isLong = samples.some((each) => each.source.length > MAX_ROW_LENGTH);
  if (store.privacy.value)
    return html`<p class="private pg-hint" data-part="samples" hidden=${!embeddedView}>
      ${store.privacy.value}
    </p>`;
  return html`<section class="samples-box" data-part="samples" aria-label=${TITLE}>
    <div class="pg-row bar">
      <h3 title="Sequences outside the training set. Wrong predicted tokens are underlined.">
        ${TITLE}
      </h3>
      <output class="value right-of" aria-live="off">
        ${
          snapshot &&
          `${rightCount} of ${samples.length} right` +
            (state.viewedStep === null ? "" : ` at step ${snapshot.step}`)
        }
      </output>
    </div>
    <table class=${isLong ? "samples long" : "samples"}>
      <tbody>
        ${samples.map((sample, i) => html`<${SampleRow} key=${i} sample=${sample} />`)}
      </tbody>
    </table>
  </section>`;
}

export function ScoresByLength() {
  const atStep = " at step " + formatInteger(state.lastResponse.step ?? 0);
  return html`<details class="lengths" hidden=${!state.finalScores}>
    <summary>Exact match by length${atStep}</summary>
    ${
      state.viewedStep !== null &&
      html`<p class="pg-hint">These scores are computed after the last step only.</p>`
    }
    ${
      state.finalScores &&
      html`<${Table}
        head=${[
          "length",
          "held-out sequences evaluated",
          "held-out sequences in total",
          "exact match",
        ]}
        rows=${state.finalScores.by_length.map((/** @type {any} */ row) => [
          row.length,
          row.n,
          row.available === null ? "over 10,000" : formatInteger(row.available),
          row.exact_match === null ? "none held out" : formatPercent(row.exact_match),
        ])}
      />`
    }
  </details>`;
}
