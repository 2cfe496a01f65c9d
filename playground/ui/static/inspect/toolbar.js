// The prediction for the input, and Export. The page's header has model, step, input and Share.
import { html } from "../vendor/preact.js";
import { TokenStrip } from "../shared/components/token_strip.js";
import { store } from "../shared/store.js";
import { SequenceInput } from "../shell/model_bar.js";
import { ExportMenu } from "./export.js";
import { prediction, problem } from "./state.js";

/** The prediction for the last valid input, compared with the target if that is known. */
function Prediction() {
  const data = prediction.value;
  if (!data) return null;
  const withoutEos = (tokens) => tokens.filter((token) => token !== "EOS"),
    // Only EOS differs: the strip shows it.
    isEosWrong =
      data.target &&
      withoutEos(data.prediction).join() === withoutEos(data.target).join() &&
      data.prediction.join() !== data.target.join(),
    clean = isEosWrong ? (tokens) => tokens : withoutEos;
  return html`<${TokenStrip}
    label="Prediction"
    tokens=${clean(data.prediction)}
    targets=${data.target && !store.isInputInvalid.value ? clean(data.target) : undefined}
  />`;
}

/** Whether parts of the model are off in Train: the views here are of the whole model. */
const hasPartsOff = () => Boolean(store.views.value.train?.read().off);

const isEmbedded = Boolean(document.documentElement.dataset.embed);

export const Toolbar = () =>
  html`<div class="pg-row toolbar">
    ${isEmbedded && html`<${SequenceInput} />`}
    <span class="pg-quiet">Prediction</span>
    <span class="arrow" aria-hidden="true">→</span>
    <output
      class=${"answer" + (store.isInputInvalid.value ? " stale" : "")}
      aria-live=${store.liveness.value}
      ><${Prediction}
    /></output>
    <span class="note pg-quiet">${prediction.value?.note}</span>
    ${hasPartsOff() && html`<span class="pg-quiet">Here, all parts are on.</span>`}
    <p class="pg-error problem" role="alert">${problem.value}</p>
    <span class="right top"><${ExportMenu} /></span>
  </div>`;
