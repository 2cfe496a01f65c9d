// The checkpoints of the open run, and uploads of checkpoints.
import { baseUrl, upload } from "../shared/api.js";
import { Button, FileButton } from "../shared/components/buttons.js";
import { downloadUrl } from "../shared/download.js";
import { formatAge, formatBytes, formatInteger, formatPercent } from "../shared/format.js";
import { Resource } from "../shared/resource.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { DamagedRow } from "./damaged_records.js";
import { Message, setMessage } from "./messages.js";
import { openModel } from "./data/model_poll.js";
import { fetchDetails, loadRuns, runAction, runAndOpen } from "./data/actions.js";
import { state } from "./state.js";

/** @import { DamagedRecord } from "../shared/responses.js" */
import { store } from "../shared/store.js";

/** The details of the open run. */
const saved = new Resource(() => fetchDetails(state.modelRef));

/** @param {string} name */
async function downloadCheckpoint(name) {
  const { ticket } = await runAction({ action: "download", checkpoint: name });
  if (ticket) downloadUrl(new URL("checkpoints/" + ticket, baseUrl).href);
}

/** @param {string} name */
async function deleteCheckpoint(name) {
  await runAction({ action: "remove", checkpoint: name }, state.modelRef, "checkpoints");
  await saved.load();
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
    html`<${Button} aria-label=${`${text}, step ${step}`} onClick=${onClick}> ${text} <//>`;
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
    /** @type {{ checkpoints?: any[], damaged?: DamagedRecord[] }} */
    { checkpoints = [], damaged = [] } = saved.data.value ?? {};
  useEffect(() => () => saved.clear(), [state.modelRef]);
  useEffect(() => {
    if (isOpen && isVisible) saved.load();
  }, [isOpen, isVisible, state.modelRef, version]);
  return html`<details
    class="saved"
    hidden=${!isVisible}
    onToggle=${(event) => setOpen(event.currentTarget.open)}
  >
    <summary>Checkpoints of this run</summary>
    ${
      !checkpoints.length &&
      html`<p class="none pg-hint">
        None yet. Training saves a checkpoint every 15 seconds, on Pause, on Stop and at the end.
      </p>`
    }
    <div class="pg-table-box">
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
    </div>
    <ul class="damaged-records" hidden=${!damaged.length}>
      ${damaged.map(
        (record) =>
          html`<${DamagedRow}
            key=${record.name}
            record=${record}
            onDelete=${() => deleteCheckpoint(record.name)}
          />`,
      )}
    </ul>
    <${Message} name="checkpoints" class="saved-note" />
  </details>`;
}

/** @param {File} file */
async function uploadCheckpoint(file) {
  setMessage("runs", "Checking " + file.name);
  let reply;
  try {
    reply = await upload("checkpoints", file, {
      "x-owner": store.owner.value,
      "x-name": encodeURIComponent(file.name.replace(/\.zip$/i, "")),
    });
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

export const UploadButton = () =>
  html`<${FileButton}
    label="Upload"
    class="upload small"
    title="Upload a checkpoint: a zip file from Download"
    accept=".zip,application/zip"
    onFile=${uploadCheckpoint}
  />`;
