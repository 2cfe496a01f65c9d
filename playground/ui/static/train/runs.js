import { NO_RESPONSE, request } from "../shared/api.js";
import { setMessage, sleepWhileHidden } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { store } from "../shared/store.js";
import { fetchOverlays, renderLegend } from "./overlays.js";
import { pollNow } from "./poller.js";
import { scheduleRender } from "./rendering.js";
import { renderRuns } from "./run_list.js";
import { renderCheckpoints } from "./saved_checkpoints.js";
import { state } from "./state.js";
import { ACTIVE_STATUSES, overlays } from "./status.js";
import { $, root } from "./view.js";

let nextListAt = 0;

// Send an action on a run to the server. Its message appears beside the control: at the open run,
// or at the list.
export async function runAction(
  payload,
  ref = state.modelRef,
  box = ref === state.modelRef ? $(".hand-note") : $(".runs-note"),
) {
  let reply,
    lost = false;
  try {
    reply = await store.runCommand(() =>
      request("runs/action", { owner: state.owner, subject: ref, ...payload }),
    );
    pollNow();
  } catch (error) {
    reply = { error: NO_RESPONSE };
    lost = true;
  }
  setMessage(
    box,
    reply.error ? reply.error[0].toUpperCase() + reply.error.slice(1) + "." : "",
    "error",
  );
  if (lost) box.dataset.lost = "yes";
  refreshRuns();
  return reply;
}

export async function fetchDetails(ref) {
  try {
    return await request("runs/details", { owner: state.owner, subject: ref });
  } catch (error) {
    return { error: NO_RESPONSE };
  }
}

// ---- the list
export async function loadRuns() {
  let response;
  try {
    response = await store.loadModels();
  } catch (error) {
    return false;
  }
  if (!response) return true; // a command is under way, and requests the list after it
  state.runs = response.runs;
  state.serverNow = response.now;
  state.maxActiveRuns = response.slots;
  if ($(".storage-note").textContent !== response.storage_message)
    $(".storage-note").textContent = response.storage_message;
  $(".device").textContent = formatMessage(response.device);
  $(".home-note").textContent = response.note;
  $(".home-note").hidden = !response.note;
  renderRuns();
  const missing = [...overlays.keys()].filter(
    (s) => !state.runs.some((r) => r.subject === s && !r.deleted),
  );
  if (missing.length) {
    missing.forEach((s) => overlays.delete(s));
    renderLegend();
    scheduleRender();
  }
  return true;
}
export function refreshRuns() {
  nextListAt = 0;
}
export async function pollRuns() {
  while (root.isConnected) {
    if (Date.now() >= nextListAt && state.owner) {
      nextListAt =
        Date.now() +
        (document.hidden
          ? 10000
          : state.runs.some((r) => ACTIVE_STATUSES.includes(r.status) && r.status !== "paused")
            ? 1500
            : 4000);
      await loadRuns();
      await fetchOverlays();
      if (
        $(".saved").open &&
        state.lastResponse.is_owner &&
        state.renderedCheckpoints !== state.modelRef + state.lastResponse.checkpoint_version
      )
        await renderCheckpoints();
    }
    const wasHidden = document.hidden;
    // A hidden page keeps polling, so that the server does not treat its owner as inactive.
    await sleepWhileHidden(150, 10000);
    if (wasHidden && !document.hidden) refreshRuns();
  }
}
