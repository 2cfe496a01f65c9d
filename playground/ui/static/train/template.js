import {
  ATTENTION_KIND,
  LOSS_TITLE,
  OVERLAY_TITLE,
  PLAY_LABEL,
  SPEED_TITLE,
} from "../shared/strings.js";
export default /* HTML */ `
  <div class="live pg" data-status="opening">
    <h2 class="unseen">Train</h2>
    <div class="top">
      <p class="status">
        <span class="dot" aria-hidden="true"></span><span class="status-text">Opening a model</span>
      </p>
      <label class="speed-field" title="${SPEED_TITLE}"
        >Speed
        <select class="speed">
          <option value="0">full</option>
          <option value="20">20 steps/s</option>
          <option value="5">5 steps/s</option>
          <option value="2">2 steps/s</option>
          <option value="1">1 step/s</option>
        </select></label
      >
      <button
        type="button"
        class="quiet share"
        title="Share a link to this run, its settings or a report"
      >
        Share
      </button>
      <button type="button" class="quiet show-keys" title="Keyboard" aria-label="Keyboard">
        ?
      </button>
    </div>
    <div class="progress" aria-hidden="true"><i></i></div>
    <p class="unseen announced" role="status"></p>
    <p class="visit-note hint" role="status" hidden></p>
    <div class="hand" role="group" aria-label="Settings that can change during training">
      <label title="Applies from the next step. A schedule scales this rate."
        >Peak learning rate <input class="rate" type="number" step="any" min="0" disabled
      /></label>
      <label title="Last training step of this run"
        >Steps <input class="target" type="number" step="1" min="1" disabled
      /></label>
      <button type="button" class="quiet resume-here" hidden>Resume</button>
      <button
        type="button"
        class="quiet keep"
        title="Saves a checkpoint of this step until you delete it"
        hidden
      >
        Save checkpoint
      </button>
      <span class="hand-note" role="alert"></span>
    </div>
    <div class="columns">
      <section class="attention" aria-label="Model">
        <div class="try" data-part="try">
          <h3 title="The greedy prediction for the input">Prediction</h3>
          <span class="embedded-input"></span>
          <span class="arrow" aria-hidden="true">→</span>
          <output class="answer symbols" aria-live="polite"></output>
          <span class="try-note" role="alert"></span>
          <span class="hint accepts"></span>
        </div>
        <div class="bar model-bar">
          <h3 title="Attention weights and predictions on one sequence, teacher-forced">Model</h3>
          <output class="value probe" aria-live="off"></output>
          <div class="kinds" role="group" aria-label="${ATTENTION_KIND}">
            <button
              type="button"
              data-kind="cross"
              aria-pressed="true"
              title="From each target position to the source"
            >
              cross
            </button>
            <button
              type="button"
              data-kind="encoder"
              aria-pressed="false"
              title="From each source position to the source"
            >
              encoder
            </button>
            <button
              type="button"
              data-kind="decoder"
              aria-pressed="false"
              title="From each target position to earlier target positions"
            >
              decoder
            </button>
          </div>
        </div>
        <p class="recording-note" role="status" hidden></p>
        <figure class="diagram">
          <div class="diagram-grid" role="group" aria-label="Heads and blocks of the model">
            <div class="diagram-links">
              <canvas class="diagram-canvas" role="img" tabindex="0"></canvas>
            </div>
          </div>
        </figure>
        <p class="diagram-note hint"></p>
        <figure class="focus">
          <figcaption></figcaption>
          <canvas
            class="focus-map"
            role="img"
            aria-label="Attention of the selected head"
            tabindex="0"
          ></canvas>
        </figure>
      </section>
      <section class="learning" aria-label="Learning">
        <div class="bar" data-part="curves">
          <select class="metric" aria-label="Upper curve" title="${LOSS_TITLE}">
            <option value="loss">Loss</option>
            <option value="learning_rate">Learning rate</option>
            <option value="grad_norm">Gradient norm</option>
          </select>
          <output class="value loss-value" aria-live="off"></output>
          <label class="smooth"
            >smoothing
            <input type="range" class="smoothing" min="0" max="0.99" step="0.01" value="0"
          /></label>
          <label class="switch" title="Logarithmic axis"
            ><input type="checkbox" class="log" checked /> log</label
          >
        </div>
        <div data-part="curves" class="loss-box"></div>
        <div class="bar" data-part="curves">
          <h3
            title="Fraction of held-out sequences that free-running decoding predicts without error"
          >
            Exact match
          </h3>
          <output class="value score-value" aria-live="off"></output>
          <span class="score-legend"></span>
        </div>
        <div data-part="curves" class="score-box"></div>
        <div class="chart-tools" data-part="curves"></div>
        <div class="rewind off" data-part="curves">
          <button
            type="button"
            class="play"
            aria-label="${PLAY_LABEL}"
            title="Play the run from its start, or from here"
          >
            ▶
          </button>
          <input
            type="range"
            class="scrub"
            min="0"
            max="1"
            value="0"
            step="1"
            aria-label="Shown step"
          />
          <span class="viewing"></span>
          <button type="button" class="quiet now" hidden>Go to latest</button>
          <button type="button" class="quiet branch" hidden>Branch from here</button>
          <span class="rewind-note" role="alert"></span>
        </div>
        <div class="overlay-legend" hidden></div>
        <div class="bar" data-part="samples">
          <h3 title="Sequences outside the training set. Wrong predicted tokens are underlined.">
            Held-out samples
          </h3>
          <output class="value right-of" aria-live="off"></output>
        </div>
        <table class="samples" data-part="samples">
          <tbody></tbody>
        </table>
        <details class="lengths" hidden>
          <summary>Exact match by length</summary>
          <table>
            <thead>
              <tr>
                <th scope="col">length</th>
                <th scope="col">held-out sequences evaluated</th>
                <th scope="col">held-out sequences in total</th>
                <th scope="col">exact match</th>
              </tr>
            </thead>
            <tbody></tbody>
          </table>
        </details>
      </section>
    </div>
    <a class="open-whole" target="_blank" rel="noopener">Open in Transformer Playground</a>
    <details class="saved" hidden>
      <summary>Checkpoints of this run</summary>
      <p class="none hint">
        None yet. Training saves a checkpoint every 15 seconds, on Pause, on Stop and at the end.
      </p>
      <table>
        <tbody></tbody>
      </table>
      <p class="saved-note" role="alert"></p>
    </details>
    <section class="runs" aria-label="Your runs">
      <div class="bar">
        <h3>Your runs</h3>
        <button
          type="button"
          class="quiet differ"
          title="Settings of the shown run and of the overlaid runs, field by field"
          disabled
        >
          Compare settings
        </button>
        <button type="button" class="quiet upload" title="A zip file from Download">
          Upload a checkpoint</button
        ><input type="file" class="file" accept=".zip,application/zip" hidden />
        <button type="button" class="quiet show-hidden" hidden></button>
      </div>
      <p class="home-note hint" hidden></p>
      <p class="runs-note" role="alert"></p>
      <p class="storage-note hint"></p>
      <p class="undo" role="status" hidden></p>
      <p class="no-runs hint">No runs yet. Train one, or upload a checkpoint.</p>
      <table hidden>
        <thead>
          <tr>
            <th scope="col" title="${OVERLAY_TITLE}">curves</th>
            <th scope="col">name</th>
            <th scope="col">status</th>
            <th scope="col" class="wide">task</th>
            <th scope="col" class="wide" title="Layers × heads, and thousands of parameters">
              layers × heads
            </th>
            <th scope="col">best</th>
            <th scope="col" class="wide">step</th>
            <th scope="col" class="wide">age</th>
            <th scope="col"><span class="unseen">Actions</span></th>
          </tr>
        </thead>
        <tbody></tbody>
      </table>
      <p class="device hint"></p>
      <template class="row-template"
        ><tr>
          <td>
            <label class="swatch"
              ><input type="checkbox" class="lay" aria-label="${OVERLAY_TITLE}"
            /></label>
          </td>
          <td><button type="button" class="name"></button></td>
          <td class="state"></td>
          <td class="task wide"></td>
          <td class="size wide"></td>
          <td class="best"></td>
          <td class="step-of wide"></td>
          <td class="age wide"></td>
          <td>
            <details class="menu">
              <summary aria-label="Actions">⋯</summary>
              <div>
                <button type="button" data-action="resume">Resume</button
                ><button type="button" data-action="stop">Stop</button>
                <button
                  type="button"
                  data-action="rerun"
                  title="Same settings, same seed, same changes at the same steps"
                >
                  Run again exactly
                </button>
                <button type="button" data-action="use" title="Copies its settings into the form">
                  Use its settings
                </button>
                <button type="button" data-action="rename">Rename</button
                ><button type="button" data-action="hide">Hide</button
                ><button type="button" data-action="delete">Delete</button>
              </div>
            </details>
          </td>
        </tr></template
      >
    </section>
    <dialog class="sharing">
      <h3>Share</h3>
      <label
        ><span class="link-means">Link to this view of the run</span
        ><span class="copying"
          ><input class="watch-link" readonly /><button type="button" class="quiet copy">
            Copy
          </button></span
        ></label
      >
      <label
        >Link that fills the form with these settings<span class="copying"
          ><input class="settings-link" readonly /><button type="button" class="quiet copy">
            Copy
          </button></span
        ></label
      >
      <label
        >Settings as JSON<span class="copying">
          <textarea class="settings-json" rows="8" readonly></textarea
          ><button type="button" class="quiet copy">Copy</button></span
        ></label
      >
      <details>
        <summary>Embed in a web page</summary>
        <p class="hint">
          An iframe with one view of this model for a course or a post. It is read-only.
        </p>
        <p>
          <select class="embed-view" aria-label="View in the frame">
            <option value="learning">Learning curves</option>
            <option value="attention">Attention</option>
            <option value="try">Try it</option>
            <option value="samples">Held-out samples</option>
          </select>
          <label class="switch"><input type="checkbox" class="embed-dark" /> dark</label>
        </p>
        <span class="copying">
          <textarea class="embed-code" rows="4" readonly aria-label="HTML of the frame"></textarea
          ><button type="button" class="quiet copy">Copy</button></span
        >
      </details>
      <details>
        <summary>Use it from code</summary>
        <p class="hint">
          A program can do what this page does. It needs <code>pip install gradio_client</code>.
        </p>
        <span class="copying">
          <textarea
            class="program"
            rows="8"
            readonly
            spellcheck="false"
            aria-label="Python program"
          ></textarea
          ><button type="button" class="quiet copy">Copy</button></span
        >
        <p class="hint agents" hidden>
          <span
            >Agents can use the same functions as MCP tools at <code class="agents-address"></code
          ></span>
        </p>
      </details>
      <p>
        <button
          type="button"
          class="quiet make-report"
          title="Scores, curves, attention, predictions and settings in one standalone file"
        >
          Report as one HTML file
        </button>
        <span class="hint report-note" role="status"></span>
      </p>
      <p>
        <button type="button" class="quiet use-these">Use these settings in the form</button>
        <button type="button" class="quiet close">Close</button>
      </p>
    </dialog>
    <dialog class="compare">
      <h3>Settings, field by field</h3>
      <label class="switch"
        ><input type="checkbox" class="every-field" /> also show equal settings</label
      >
      <p class="alike hint" hidden>All settings are equal.</p>
      <div class="scrolling" tabindex="0"><table class="differences"></table></div>
      <p><button type="button" class="quiet close">Close</button></p>
    </dialog>
    <dialog class="keys">
      <h3>Keyboard</h3>
      <table>
        <tbody>
          <tr>
            <td><kbd>space</kbd></td>
            <td>pause, resume</td>
          </tr>
          <tr>
            <td><kbd>→</kbd></td>
            <td>one step, while paused</td>
          </tr>
          <tr>
            <td><kbd>←</kbd> <kbd>→</kbd></td>
            <td>with the slider in focus: back and forth through the recorded steps</td>
          </tr>
          <tr>
            <td><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd></td>
            <td>on a curve or a head: read single values</td>
          </tr>
          <tr>
            <td><kbd>?</kbd></td>
            <td>this list</td>
          </tr>
        </tbody>
      </table>
      <p><button type="button" class="quiet close">Close</button></p>
    </dialog>
  </div>
`;
