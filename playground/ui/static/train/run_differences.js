// The settings of the open run and of its overlays, side by side.
import { Dialog as ModalDialog } from "../shared/components/dialog.js";
import { formatMessage } from "../shared/format.js";
import { html, signal, useState } from "../vendor/preact.js";
import { setMessage } from "./messages.js";
import { overlayColor, overlays } from "./data/overlays.js";
import { fetchDetails } from "./data/actions.js";
import { state } from "./state.js";

const LIVE_SETTINGS = ["speed", "num_threads"]; // they change nothing in the result

/** The runs of the open dialog. */
const compared = signal(/** @type {any[] | null} */ (null));

export async function open() {
  const refs = [state.modelRef, ...overlays.value.keys()],
    runs = await Promise.all(refs.map(fetchDetails)),
    failed = runs.find((run) => run.error);
  if (failed) setMessage("runs", formatMessage(failed.error), { isError: true });
  else
    compared.value = runs.map((run, i) => ({
      ...run,
      name: run.name || refs[i].split(":")[1],
      color: i ? overlayColor(overlays.value.get(refs[i])?.colorIndex ?? 0) : "var(--pg-accent)",
    }));
}

/** @param {{ changes?: [number, string, any][] }} run */
const describeChanges = ({ changes = [] }) =>
  changes
    .filter(([, setting]) => !LIVE_SETTINGS.includes(setting))
    .map(([step, setting, value]) => `${setting} ${value} from step ${step}`)
    .join("; ") || "none";

/**
 * Return a row for each setting: its name, and its value in each run.
 * @param {any[]} runs
 * @param {boolean} isComplete whether settings that are equal in all runs are included
 * @returns {string[][]}
 */
export function compareSettings(runs, isComplete) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))],
    rows = names.map((name) => [name, ...runs.map((run) => String(run.settings[name] ?? ""))]);
  rows.push(["weights by optimizer", ...runs.map((run) => run.optimizer_groups ?? "")]);
  rows.push(["changed during training", ...runs.map(describeChanges)]);
  return rows.filter(([, ...values]) => isComplete || new Set(values).size > 1);
}

export function Dialog() {
  const [isComplete, setComplete] = useState(false),
    runs = compared.value ?? [],
    rows = compareSettings(runs, isComplete);
  return html`<${ModalDialog}
    title="Compare settings"
    class="compare"
    isOpen=${compared.value !== null}
    onClose=${() => (compared.value = null)}
  >
    <label class="pg-quiet switch">
      <input
        type="checkbox"
        class="every-field"
        checked=${isComplete}
        onChange=${() => setComplete(!isComplete)}
      />
      also show equal settings
    </label>
    ${!rows.length && html`<p class="no-differences pg-hint">All settings are equal.</p>`}
    <div class="pg-table-box" tabindex="0" hidden=${!rows.length}>
      <table class="differences">
        <tr>
          <th>setting</th>
          ${runs.map(
            ({ name, color }) =>
              html`<th title=${name} style=${{ borderBottom: "3px solid " + color }}>${name}</th>`,
          )}
        </tr>
        ${rows.map(
          (row) =>
            html`<tr key=${row[0]}>
              ${row.map((value) => html`<td>${value}</td>`)}
            </tr>`,
        )}
      </table>
    </div>
  <//>`;
}
