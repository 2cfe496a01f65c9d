// The elements of the tab. The diagram and the large map of a head are painted by their modules;
// their elements stay the same.
import { ATTENTION_KIND } from "../shared/strings.js";
import { html, useRef } from "../vendor/preact.js";
import { wholePageUrl } from "../shared/view.js";
import { ColorScale } from "../shared/components/color_scale.js";
import { formatInteger } from "../shared/format.js";
import { store } from "../shared/store.js";
import { Curves } from "./curves.js";
import { displayedPass } from "./diagram/diagram.js";
import { BlockScores } from "./diagram/scores.js";
import { Dialogs } from "./dialogs.js";
import { Prediction } from "./prediction.js";
import { scheduleRender } from "./rendering.js";
import { RunList } from "./run_list.js";
import { Samples, ScoresByLength } from "./samples.js";
import { SavedCheckpoints } from "./saved_checkpoints.js";
import { SessionNote } from "../shared/session.js";
import { embeddedView } from "./share_links.js";
import { HelpDialog } from "./shortcuts.js";
import { selectKind, state } from "./state.js";
import { Timeline } from "./timeline.js";
import { TopBar } from "./top_bar.js";

const KINDS = /** @type {Record<string, string>} */ ({
  cross: "From each target position to the source",
  encoder: "From each source position to the source",
  decoder: "From each target position to earlier target positions",
});

/** The sequence and step of the diagram; until the first snapshot, those of the previous model. */
function DisplayedPass() {
  const text = useRef("");
  if (state.displayedSnapshot && state.probeInfo) {
    const { source, step } = displayedPass(),
      tokens = source.filter((/** @type {string} */ token) => token !== "EOS");
    text.current = [tokens.join(" "), "step " + formatInteger(step)].filter(Boolean).join(" · ");
  }
  return html`<output class="value probe" aria-live="off">${text.current}</output>`;
}

function KindSelect() {
  const latest = useRef(Object.keys(KINDS)),
    { attention } = state.displayedSnapshot ?? {},
    kinds = attention ? (latest.current = Object.keys(attention)) : latest.current;
  return html`<div class="kinds" role="group" aria-label=${ATTENTION_KIND}>
    ${Object.entries(KINDS).map(
      ([kind, title]) =>
        html`<button
          key=${kind}
          type="button"
          data-kind=${kind}
          title=${title}
          aria-pressed=${String(kind === state.selectedKind)}
          hidden=${!kinds.includes(kind)}
          onClick=${() => {
            selectKind(kind);
            scheduleRender();
          }}
        >
          ${kind}
        </button>`,
    )}
  </div>`;
}

const ModelBar = () =>
  html`<div class="bar model-bar">
    <h3 title="Attention weights and predictions on one sequence, teacher-forced">Model</h3>
    <${DisplayedPass} /><${KindSelect} />
  </div>`;

const Diagram = () =>
  html`<div class="diagram-box">
      <p class="no-figures pg-hint">
        The model, its attention and its predictions appear after the first training step.
      </p>
      <figure class="diagram">
        <div class="diagram-grid" role="group" aria-label="Heads and blocks of the model">
          <div class="diagram-links">
            <canvas class="diagram-canvas" role="img" tabindex="0"></canvas>
          </div>
        </div>
      </figure>
    </div>
    <p class="diagram-note pg-hint"></p>
    <${BlockScores} />`;

const SelectedHead = () =>
  html`<figure class="focus">
    <canvas
      class="focus-map"
      role="img"
      aria-label="Attention of the selected head"
      tabindex="0"
    ></canvas>
    <${ColorScale} max=${1} />
    <figcaption></figcaption>
  </figure>`;

const Notes = () => html`<p class="device pg-hint">${store.server.value.device}</p>`;

export const Train = () =>
  html`<h2 class="pg-visually-hidden">Train</h2>
    <${TopBar} /><${SessionNote} />
    <div class="columns">
      <section class="attention" aria-label="Model">
        <div class="prediction-row">
          <${Prediction} />
          <p class="recording-note" role="status" hidden></p>
        </div>
        <${ModelBar} /><${Diagram} />
        <div class="details-row"><${SelectedHead} /><${Samples} /></div>
      </section>
      <section class="learning" aria-label="Learning">
        <${Curves} /><${Timeline} /><${RunList} />
      </section>
    </div>
    ${
      embeddedView &&
      html`<a class="open-full-page" href=${wholePageUrl()} target="_blank" rel="noopener"
        >Open in Transformer Playground</a
      >`
    }
    <${ScoresByLength} /><${SavedCheckpoints} /><${Notes} /> <${Dialogs} /><${HelpDialog} />`;
