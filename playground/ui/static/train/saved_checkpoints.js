// The checkpoints of the open run, and uploads of checkpoints.
import { baseUrl } from "../shared/api.js";
import { downloadUrl } from "../shared/csv.js";
import { formatAge, formatBytes, formatInteger, formatPercent } from "../shared/format.js";
import { html, signal, useEffect, useRef, useState } from "../vendor/preact.js";
import { Message, setMessage } from "./messages.js";
import { openModel } from "./model_selection.js";
import { fetchDetails, loadRuns, runAction, runAndOpen } from "./runs.js";
import { state } from "./state.js";

/** The checkpoints, and the run that they are of. */
const saved = signal({ ref: "", checkpoints: /** @type {any[]} */ ([]) });

async function loadCheckpoints() {
  const ref = state.modelRef,
    { checkpoints } = await fetchDetails(ref);
  if (checkpoints && ref === state.modelRef) saved.value = { ref, checkpoints };
}

/** @param {string} name */
async function downloadCheckpoint(name) {
  const { ticket } = await runAction({ action: "download", checkpoint: name });
  if (ticket) downloadUrl(new URL("checkpoints/" + ticket, baseUrl).href);
}

/** @param {string} name */
async function deleteCheckpoint(name) {
  await runAction({ action: "remove", checkpoint: name }, state.modelRef, "checkpoints");
  await loadCheckpoints();
}

/** @param {{ checkpoint: any, index: number }} props */
function CheckpointRow({ checkpoint, index }) {
  const { name, step, exact_match: exactMatch } = checkpoint,
    [isSure, setSure] = useState(false);
  const onDelete = () => {
    setSure(!isSure);
    if (isSure) deleteCheckpoint(name);
  };
  const button = (/** @type {string} */ text, /** @type {() => void} */ onClick) =>
    html`<button
      type="button"
      class="pg-button"
      aria-label=${`${text}, step ${step}`}
      onClick=${onClick}
    >
      ${text}
    </button>`;
  return html`<tr>
    <td>step ${formatInteger(step)}</td>
    <td>${checkpoint.is_pinned ? "saved by you" : index ? "previous" : "latest"}</td>
    <td>${exactMatch === null ? "–" : formatPercent(exactMatch)}</td>
    <td>${formatBytes(checkpoint.bytes)}</td>
    <td>${formatAge(Date.now() / 1000 - checkpoint.written)}</td>
    <td>
      ${button("Download", () => downloadCheckpoint(name))}
      ${checkpoint.resumable && button("Branch", () => runAndOpen({ action: "branch", step }))}
      ${button(isSure ? "Delete permanently" : "Delete", onDelete)}
    </td>
  </tr>`;
}

export function SavedCheckpoints() {
  const { is_owner: isOwner, checkpoint_version: version } = state.lastResponse,
    [isOpen, setOpen] = useState(false),
    isVisible = isOwner && state.modelRef.startsWith("run:"),
    checkpoints = saved.value.ref === state.modelRef ? saved.value.checkpoints : [];
  useEffect(() => {
    if (isOpen && isVisible) loadCheckpoints();
  }, [isOpen, isVisible, state.modelRef, version]);
  return html`<details
    class="saved"
    hidden=${!isVisible}
    onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}
  >
    <summary>Checkpoints of this run</summary>
    ${
      !checkpoints.length &&
      html`<p class="none pg-hint">
        None yet. Training saves a checkpoint every 15 seconds, on Pause, on Stop and at the end.
      </p>`
    }
    <table>
      <tbody>
        ${checkpoints.map(
          (checkpoint, index) =>
            html`<${CheckpointRow}
              key=${checkpoint.name}
              checkpoint=${checkpoint}
              index=${index}
            />`,
        )}
      </tbody>
    </table>
    <${Message} name="checkpoints" class="saved-note" />
  </details>`;
}

/** @param {File} file */
async function uploadCheckpoint(file) {
  setMessage("runs", "Checking " + file.name);
  let reply;
  try {
    const response = await fetch(new URL("checkpoints", baseUrl), {
      method: "POST",
      body: file,
      headers: {
        "x-owner": state.owner,
        "x-name": encodeURIComponent(file.name.replace(/\.zip$/i, "")),
      },
    });
    reply = response.headers.get("content-type")?.includes("json")
      ? await response.json()
      : { error: await response.text() };
  } catch {
    const reason = "could not be sent; it may be too large, or the server does not respond.";
    setMessage("runs", `${file.name} ${reason}`, { isError: true });
    return;
  }
  setMessage("runs", reply.error ? `${file.name} was rejected: ${reply.error}.` : "", {
    isError: true,
  });
  if (!reply.subject) return;
  await loadRuns();
  openModel(reply.subject);
}

export function UploadButton() {
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  const onChange = async (/** @type {any} */ { currentTarget: input }) => {
    const file = input.files[0];
    if (file) await uploadCheckpoint(file);
    input.value = "";
  };
  return html`<button
      type="button"
      class="pg-button upload"
      title="Upload a checkpoint: a zip file from Download"
      onClick=${() => box.current?.click()}
    >
      Upload</button
    ><input
      ref=${box}
      type="file"
      class="file"
      accept=".zip,application/zip"
      hidden
      onChange=${onChange}
    />`;
}
