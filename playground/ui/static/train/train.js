// The elements of the tab.
import { TokenStrip, TokenText } from "../shared/components/token_strip.js";
import { formatInteger } from "../shared/format.js";
import { SessionNote } from "../shared/session.js";
import { store } from "../shared/store.js";
import { PART_NOT_LOADED } from "../shared/strings.js";
import { wholePageUrl } from "../shared/view.js";
import { SequenceInput } from "../shell/model_bar.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { figure } from "./data/snapshots.js";
import { Message } from "./messages.js";
import { ModelDiagram } from "./model_diagram.js";
import { embeddedView, state } from "./state.js";
import { TopBar } from "./top_bar.js";

/** The prediction for the input. */
export function Prediction() {
  const { prediction = [], target = null, modelRef = state.modelRef } = state.prediction ?? {},
    isOld = modelRef !== state.modelRef, // the previous model's, until the reply
    { accepts = "" } = state.probeInfo ?? {};
  if (store.privacy.value)
    return html`<p class="private pg-hint" data-part="try">
      ${store.privacy.value} Numbers stand for positions.
    </p>`;
  return html`<div class="pg-row try" data-part="try">
    <h3 title=${`The greedy prediction for the input. Tokens: ${accepts}`}>Prediction</h3>
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
  </div>`;
}

/** The sequence and step of the diagram. */
function DisplayedPass() {
  const { source = [], step } = figure.value?.pass ?? {},
    tokens = source.filter((/** @type {string} */ token) => token !== "EOS"),
    separator = tokens.length ? " · " : "";
  return html`<output class="value pg-quiet probe" aria-live="off">
    <span><${TokenText} tokens=${tokens} /></span
    >${step !== undefined && `${separator}step ${formatInteger(step)}`}
  </output>`;
}

const NONE = () => null,
  NotLoaded = () => html`<p class="pg-hint">${PART_NOT_LOADED}</p>`;
/**
 * Return the components about learning. They load after the model, which they would delay on a slow
 * line. What they import loads at the same time.
 */
function useLearning() {
  const isOpening = state.status === "opening",
    [components, setComponents] = useState(/** @type {Record<string, any>} */ ({}));
  useEffect(() => {
    if (isOpening) return;
    const modules = [import("./learning.js"), import("../shared/chart.js")];
    Promise.all([...modules, import("../vendor/uplot.js")]).then(
      ([module]) => setComponents(module),
      () => setComponents({ Learning: NotLoaded }),
    );
  }, [isOpening]);
  return (/** @type {string} */ name) => html`<${components[name] ?? NONE} />`;
}

export function Train() {
  const show = useLearning();
  return html`<h2 class="pg-visually-hidden">Train</h2>
    <${TopBar}>${show("RecordingNote")}<//><${SessionNote} />
    <div class="columns">
      <section class="attention" aria-label="Model">
        <div class="prediction-row"><${Prediction} /><${DisplayedPass} /></div>
        <${ModelDiagram} />
      </section>
      ${show("Samples")}
      <section class="learning" aria-label="Learning">${show("Learning")}</section>
    </div>
    ${
      embeddedView &&
      html`<a class="pg-quiet open-full-page" href=${wholePageUrl()} target="_blank" rel="noopener"
        >Open in Transformer Playground</a
      >`
    }
    <div class="pg-row more">${show("SavedCheckpoints")}</div>`;
}
