// The dialog for links to the view, embedded frames, code, and the model as a file.
import { nameOf } from "../engine/parts.js";
import { requestOrError } from "../shared/api.js";
import { Button, CopyField } from "../shared/components/buttons.js";
import { Dialog as ModalDialog } from "../shared/components/dialog.js";
import { downloadFile } from "../shared/download.js";
import { formatMessage } from "../shared/format.js";
import { writeParams } from "../shared/links.js";
import { store } from "../shared/store.js";
import { html, signal, useState } from "../vendor/preact.js";
import { Message, setMessage } from "./messages.js";
import { fetchDetails, runAction } from "./data/actions.js";
import { stacks } from "./data/selection.js";
import { figure, showLatest } from "./data/snapshots.js";
import { Picture } from "./share_picture.js";
import { state } from "./state.js";

const pageUrl = () => location.origin + location.pathname;
const FILE_TIMEOUT_MS = 120_000;
const PAGE_TITLE = "The model in one HTML file that runs it without a server";
const REPORT_TITLE = "Scores, curves, attention, predictions and settings in one standalone file";
const EMBED_VIEWS = /** @type {Record<string, [string, number]>} */ ({
  learning: ["learning curves", 420],
  attention: ["attention", 1060],
  try: ["prediction", 140],
  samples: ["held-out samples", 300],
});
/** What the open dialog shares: {ref, link, card, pass, settings, command, isOwn, mayUse}. */
const shared = signal(/** @type {any} */ (null));

/** What the picture states while parts are off; the scores of the model are not those. */
export function describeParts() {
  const off = state.displayedOff,
    { right, measured } = state.switchScore ?? {},
    what = off.length > 1 ? `${off.length} parts` : nameOf(off[0], stacks.value.length === 1);
  return `Without ${what}` + (measured ? `: ${right} of ${measured} unseen inputs right` : "");
}

/** The head of the picture: the selected one, if it reads the input for the output. */
function pictureHead() {
  const { selectedKind: kind, selectedHead } = state,
    nLayers = figure.value?.pass.attention.cross?.length,
    [layer, head] = nLayers && kind !== "cross" ? [nLayers - 1, 0] : selectedHead;
  return { kind: nLayers ? "cross" : kind, layer, head };
}

export async function open() {
  if (store.isPlaying.value) showLatest();
  const details = await fetchDetails(state.modelRef),
    { error, share_id: ownShareId, settings, command, result } = details;
  if (error) {
    setMessage("run", formatMessage(error), { isError: true });
    return;
  }
  const hasPartsOff = state.displayedOff.length > 0,
    selected = pictureHead(),
    ref = ownShareId ? "watch:" + ownShareId : state.modelRef;
  setMessage("picture", "");
  setMessage("file", "");
  shared.value = {
    ref,
    link: store.buildLink({ model: ref, over: null }),
    pass: figure.value?.pass,
    card: {
      name: state.lastResponse.name,
      result: hasPartsOff ? describeParts() : result,
      hasPartsOff,
      address: location.host + location.pathname.replace(/\/$/, ""),
      evaluations: state.evaluations,
      lastStep: state.lastResponse.step,
      head: nameOf(selected, stacks.value.length === 1),
      selected,
    },
    settings,
    command,
    isOwn: Boolean(ownShareId),
    mayUse: details.viewers_may_use ?? !store.privacy.value,
  };
}

/** Return the HTML of a frame with one view. */
export function buildEmbedCode(link, view) {
  const url = writeParams(link, { embed: view }).replaceAll("&", "&amp;"),
    size = `width="100%" height="${EMBED_VIEWS[view][1]}" style="border: 0" loading="lazy"`;
  return `<iframe src="${url}" title="Transformer Playground: ${view}" ${size}></iframe>`;
}

/**
 * Return a Python program that runs a model and starts a run with its task.
 * @param {string} model
 * @param {Record<string, any>} settings
 */
export function buildProgram(model, settings) {
  const text = JSON.stringify(store.sequence.value || store.suggestedInput.value);
  const { task, min_length, max_length, dataset_sha256 } = settings;
  const named = { task, min_length, max_length, ...(dataset_sha256 ? { dataset_sha256 } : {}) };
  return `from gradio_client import Client

playground = Client(${JSON.stringify(pageUrl())})
print(playground.predict(model=${JSON.stringify(model)}, sequence=${text}, api_name="/predict"))

run = playground.predict(settings=${JSON.stringify(named)}, api_name="/start")
print(playground.predict(model=run["run"], owner=run["owner"], api_name="/status"))`;
}

/**
 * Return the codes of a model: the label of each, what it is for, and its text. Some need the right
 * to use the model.
 */
function buildCodes({ ref, link, settings, command, mayUse }) {
  const frame = "An iframe with one read-only view of this model, for a course or a post",
    client = "Does what this page does; needs: pip install gradio_client",
    views = Object.entries(EMBED_VIEWS),
    codes = /** @type {[string, string, string, boolean][]} */ ([
      ...views.map(([view, [label]]) => [
        "Embed: " + label,
        frame,
        buildEmbedCode(link, view),
        mayUse || !["try", "samples"].includes(view),
      ]),
      ["Python program", client, buildProgram(ref, settings), mayUse],
      ["Command", "Trains this model again on another computer", command, Boolean(command)],
      ["Settings as JSON", "All settings of this model", JSON.stringify(settings, null, 1), true],
    ]);
  return codes.filter(([, , , isOffered]) => isOffered);
}

/** @param {{ content: any }} props */
function Code({ content }) {
  const codes = buildCodes(content),
    [selected, select] = useState(""),
    [label, purpose, text] = codes.find(([name]) => name === selected) ?? codes[0];
  return html`<details>
    <summary>Code</summary>
    <p>
      <select
        class="code-kind"
        aria-label="Kind of code"
        value=${label}
        onChange=${(event) => select(event.currentTarget.value)}
      >
        ${codes.map(([name]) => html`<option value=${name}>${name}</option>`)}
      </select>
    </p>
    <${CopyField} class="code" label=${purpose} rows=${8} value=${text} />
  </details>`;
}

/** The owner's choice of what viewers may do. @param {{ content: any }} props */
function Consent({ content }) {
  const onChange = async () => {
    const mayUse = !content.mayUse,
      reply = await runAction({ action: "share", viewers_may_use: mayUse });
    if (!reply.error) shared.value = { ...content, mayUse };
  };
  return html`<label class="pg-quiet consent">
      <input type="checkbox" checked=${content.mayUse} onChange=${onChange} />
      Viewers may see examples and use the model
    </label>
    <p class="pg-hint">
      ${content.mayUse ? "" : "Viewers see curves, scores and attention without tokens. "}${
        content.settings.task === "dataset" && "Viewers never get your dataset."
      }
    </p>`;
}

function FileButtons() {
  const [isBusy, setBusy] = useState(false),
    { right } = state.lastResponse;
  const save = async (route) => {
    setBusy(true);
    setMessage("file", "Writing the file");
    const payload = { owner: store.owner.value, subject: state.modelRef },
      reply = await requestOrError(route, payload, FILE_TIMEOUT_MS);
    setBusy(false);
    setMessage("file", formatMessage(reply.error ?? ""), { isError: true });
    if (!reply.error) downloadFile(reply.name, reply.html);
  };
  const button = (route, label, title) =>
    html`<${Button} title=${title} disabled=${isBusy} onClick=${() => save(route)}>${label}<//>`;
  return html`<p class="files">
      ${right === "own" && button("runs/page", "Save as page", PAGE_TITLE)}
      ${["own", "reuse"].includes(right) && button("runs/report", "Save as report", REPORT_TITLE)}
    </p>
    ${
      right === "own" &&
      html`<p class="pg-hint">
        The page runs the model without a server. Who gets the file gets the weights and held-out
        examples of the task.
      </p>`
    }
    <${Message} name="file" class="file-note" />`;
}

export function Dialog() {
  const content = shared.value;
  return html`<${ModalDialog}
    title="Share"
    class="sharing"
    isOpen=${content !== null}
    onClose=${() => (shared.value = null)}
  >
    ${
      content &&
      html`<div class="pg-halves">
        <div>${content.pass && html`<${Picture} ...${content} />`}</div>
        <div>
          <${CopyField}
            class="watch-link"
            label=${
              content.ref.startsWith("watch:")
                ? "Link to this view of the run. Viewers can replay it, but cannot change it."
                : "Link to this view of the model"
            }
            value=${content.link}
          />
          ${content.isOwn && html`<${Consent} content=${content} />`}
          <${CopyField}
            class="settings-link"
            label="Link that fills the form with these settings"
            value=${writeParams(pageUrl(), { settings: JSON.stringify(content.settings) })}
          />
          <${Code} content=${content} />
          <${FileButtons} />
        </div>
      </div>`
    }
  <//>`;
}
