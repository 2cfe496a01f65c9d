// Records on the disk of the server that cannot be read, and what the owner can do about them.
import { requestOrError } from "../shared/api.js";
import { ConfirmButton } from "../shared/components/buttons.js";
import { formatBytes, formatMessage } from "../shared/format.js";
import { html, signal, useEffect } from "../vendor/preact.js";
import { setMessage } from "./messages.js";

/** @import { DamagedRecord } from "../shared/responses.js" */
import { store } from "../shared/store.js";

const damaged = signal(/** @type {DamagedRecord[]} */ ([]));

async function loadDamaged() {
  const reply = await requestOrError("damaged/list", { owner: store.owner.value });
  if (reply.damaged) damaged.value = reply.damaged;
}

/** @param {DamagedRecord} record */
async function removeDamaged({ kind, name }) {
  const { error } = await requestOrError("damaged/remove", {
    owner: store.owner.value,
    kind,
    name,
  });
  setMessage("runs", formatMessage(error ?? ""), { isError: true });
  await loadDamaged();
}

/** @param {{ record: DamagedRecord, onDelete: (record: DamagedRecord) => void }} props */
export function DamagedRow({ record, onDelete }) {
  const { kind, name, reason, bytes } = record;
  return html`<li class="damaged">
    <span title=${name}>${kind} ${name} is damaged (${formatBytes(bytes)})</span>
    <${ConfirmButton}
      label="Delete"
      question=${`Delete the damaged ${kind}?`}
      onConfirm=${() => onDelete(record)}
    />
    <p class="pg-hint">${formatMessage(reason)}</p>
  </li>`;
}

/** The damaged runs, checkpoints and experiments; nothing if there are none. */
export function DamagedRecords() {
  useEffect(() => {
    if (store.owner.value) loadDamaged();
  }, [store.owner.value]);
  const key = (/** @type {DamagedRecord} */ { kind, name }) => `${kind} ${name}`;
  return html`<ul class="damaged-records" hidden=${!damaged.value.length}>
    ${damaged.value.map(
      (each) => html`<${DamagedRow} key=${key(each)} record=${each} onDelete=${removeDamaged} />`,
    )}
  </ul>`;
}
