// The prediction for the input.
import { TokenStrip, TokenText } from "../shared/components/token_strip.js";
import { store } from "../shared/store.js";
import { SequenceInput } from "../shell/model_bar.js";
import { html } from "../vendor/preact.js";
import { Message } from "./messages.js";
import { embeddedView, state } from "./state.js";

export function Prediction() {
  const { prediction = [], target = null, modelRef = state.modelRef } = state.prediction ?? {},
    isOld = modelRef !== state.modelRef, // the previous model's, until the reply
    accepts = state.probeInfo?.accepts;
  if (store.privacy.value)
    return html`<p class="private pg-hint" data-part="try">
      ${store.privacy.value} Numbers stand for positions.
    </p>`;
  return html`<div class="pg-row try" data-part="try">
    <h3 title="The greedy prediction for the input">Prediction</h3>
    ${embeddedView && html`<${SequenceInput} />`}
    <span class="arrow" aria-hidden="true">→</span>
    <output
      class=${isOld ? "answer old" : "answer"}
      aria-live=${state.status === "training" ? "off" : "polite"}
    >
      ${
        target
          ? html`<${TokenStrip} label="Prediction" tokens=${prediction} targets=${target} />`
          : html`<${TokenText} tokens=${prediction} />`
      }
    </output>
    <${Message} name="prediction" class="try-note" />
    <span class="pg-hint accepts">${accepts && "tokens: " + accepts}</span>
  </div>`;
}
