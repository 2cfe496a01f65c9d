// Checkpoints of the open run.
import { baseUrl } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { formatAge, formatBytes, formatMessage, formatPercent } from "../shared/format.js";
import { openModel } from "./model_selection.js";
import { fetchDetails, loadRuns, runAction } from "./runs.js";
import { state } from "./state.js";
import { $, gradio } from "./view.js";

export async function renderCheckpoints() {
  const requestedRef = state.modelRef,
    version = state.modelRef + state.lastResponse.checkpoint_version,
    response = await fetchDetails(requestedRef);
  if (requestedRef !== state.modelRef || !response.checkpoints) return;
  state.renderedCheckpoints = version;
  const body = $(".saved tbody"),
    signature = requestedRef + JSON.stringify(response.checkpoints);
  if (body.dataset.signature === signature) return; // keep a pending confirmation button
  body.dataset.signature = signature;
  $(".saved .none").hidden = response.checkpoints.length > 0;
  body.replaceChildren(
    ...response.checkpoints.map((c, at) => {
      const row = document.createElement("tr"),
        cells = [
          "step " + c.step.toLocaleString("en"),
          c.is_pinned ? "kept" : at ? "the one before" : "latest",
          c.exact_match === null ? "–" : formatPercent(c.exact_match),
          formatBytes(c.bytes),
          formatAge(Date.now() / 1000 - c.written),
        ];
      for (const text of cells) row.insertCell().textContent = text;
      const actions = row.insertCell(),
        add = (text, act) => {
          const b = document.createElement("button");
          b.type = "button";
          b.className = "quiet";
          b.textContent = text;
          b.setAttribute("aria-label", text + ", step " + c.step);
          b.addEventListener("click", act);
          actions.append(b);
        };
      add("Download", () => downloadCheckpoint(c.name));
      if (c.resumable)
        add("Continue as a new run", async () => {
          const reply = await runAction({ action: "branch", step: c.step });
          if (reply.subject) {
            await loadRuns();
            openModel(reply.subject);
          }
        });
      let sure = false;
      add("Delete", async (event) => {
        if (!sure) {
          sure = true;
          event.target.textContent = "Delete permanently";
          return;
        }
        sure = false;
        event.target.textContent = "Delete";
        await runAction({ action: "remove", checkpoint: c.name }, state.modelRef, $(".saved-note"));
        await renderCheckpoints();
      });
      return row;
    }),
  );
}

async function downloadCheckpoint(name) {
  const reply = await runAction({ action: "download", checkpoint: name });
  if (!reply.ticket) return;
  const link = document.createElement("a");
  link.href = new URL("checkpoints/" + reply.ticket, baseUrl);
  link.download = "";
  document.body.append(link);
  link.click();
  link.remove();
}

// ---- sharing
export async function loadSettings(ref) {
  const response = await fetchDetails(ref);
  if (
    response.settings &&
    response.settings.task === "dataset" &&
    !response.settings.dataset_sha256
  )
    setMessage(
      $(".runs-note"),
      "This run uses a dataset of its owner. Select Your own data as the task and add your own.",
      "error",
    );
  else if (response.settings) {
    gradio.trigger("select", { index: 0, value: response.settings });
    setMessage($(".runs-note"), "The form now has its settings. Press Train to start a run.");
  } else setMessage($(".runs-note"), formatMessage(response.error || ""), "error");
}

export function initSavedCheckpoints() {
  $(".saved").addEventListener("toggle", () => {
    if ($(".saved").open) renderCheckpoints();
  });
  $(".upload").addEventListener("click", () => $(".file").click());
  $(".file").addEventListener("change", async (event) => {
    const file = event.target.files[0],
      box = $(".runs-note");
    if (!file) return;
    setMessage(box, "Checking " + file.name);
    try {
      const answer = await fetch(new URL("checkpoints", baseUrl), {
        method: "POST",
        body: file,
        headers: {
          "x-owner": state.owner,
          "x-name": encodeURIComponent(file.name.replace(/\.zip$/i, "")),
        },
      });
      const reply = answer.headers.get("content-type")?.includes("json")
        ? await answer.json()
        : { error: await answer.text() };
      setMessage(
        box,
        reply.error ? file.name + " was rejected: " + reply.error + "." : "",
        "error",
      );
      if (reply.subject) {
        await loadRuns();
        openModel(reply.subject);
      }
    } catch (error) {
      setMessage(
        box,
        file.name + " could not be sent; it may be too large, or the server does not respond.",
        "error",
      );
    }
    event.target.value = "";
  });
}
