import { formatAge, formatCount, formatPercent } from "../shared/format.js";
import { OVERLAY_TITLE } from "../shared/strings.js";
import { overlayColor, MAX_OVERLAYS } from "./curves.js";
import { openModel } from "./model_selection.js";
import { toggleOverlay } from "./overlays.js";
import { loadRuns, runAction } from "./runs.js";
import { loadSettings } from "./saved_checkpoints.js";
import { state } from "./state.js";
import { ACTIVE_STATUSES, formatQueuePosition, overlays } from "./status.js";
import { $, addViewListener, root } from "./view.js";

let showHidden = false;

const STATUS_LABELS = {
  waiting: "queued",
  starting: "starting",
  training: "training",
  paused: "paused",
  stopping: "stopping",
  done: "done",
  stopped: "stopped",
  failed: "failed",
};
export function renderRuns() {
  const body = $(".runs tbody"),
    visible = state.runs.filter((r) => !r.deleted && (showHidden || !r.hidden));
  const rows = new Map([...body.children].map((row) => [row.dataset.subject, row]));
  const hidden = state.runs.filter((r) => r.hidden && !r.deleted).length;
  $(".no-runs").hidden = visible.length > 0;
  $(".runs table").hidden = !visible.length;
  $(".show-hidden").hidden = !hidden;
  $(".show-hidden").textContent = showHidden
    ? "Hide hidden runs"
    : "Show " + formatCount(hidden, "hidden run");
  const rowElements = visible.map((r) => {
    const row = rows.get(r.subject) || createRunRow(r.subject),
      cell = (name, text) => {
        const c = row.querySelector("." + name);
        if (c.textContent !== text) c.textContent = text;
        return c;
      };
    rows.delete(r.subject);
    row.classList.toggle("open", r.subject === state.modelRef);
    row.classList.toggle("hidden-run", r.hidden);
    if (!row.querySelector(".renaming")) {
      cell("name", r.name).title = r.name;
    }
    cell(
      "state",
      r.queue_position
        ? formatQueuePosition(r.queue_position)
        : r.awaits_zerogpu
          ? "next slice"
          : STATUS_LABELS[r.status] || r.status,
    ).dataset.status = r.status;
    cell("task", r.task);
    cell(
      "size",
      r.shape[0] + " × " + r.shape[1] + ", " + Math.round(r.parameters / 1000) + " K",
    ).title =
      formatCount(r.shape[0], "layer") +
      ", " +
      formatCount(r.shape[1], "head") +
      ", d_model " +
      r.shape[2] +
      ", " +
      r.parameters.toLocaleString("en") +
      " parameters";
    cell("best", r.best === null ? "–" : formatPercent(r.best)).title =
      r.best === null ? "" : "of " + formatCount(r.eval_size, "held-out sequence");
    cell(
      "step-of",
      r.step.toLocaleString("en") +
        (r.step < r.max_steps ? " of " + r.max_steps.toLocaleString("en") : ""),
    );
    cell("age", formatAge(state.serverNow - r.created));
    const box = row.querySelector(".lay"),
      on = overlays.has(r.subject),
      self = r.subject === state.modelRef;
    box.checked = on || self;
    box.disabled = self || (!on && overlays.size >= MAX_OVERLAYS);
    box.title = self
      ? "Shown"
      : box.disabled
        ? "At most eight curves can be overlaid"
        : OVERLAY_TITLE;
    row.style.setProperty(
      "--colour",
      self
        ? "var(--pg-accent)"
        : on
          ? overlayColor(overlays.get(r.subject).colorIndex)
          : "transparent",
    );
    row.querySelector("[data-action=hide]").textContent = r.hidden ? "Show again" : "Hide";
    row.querySelector("[data-action=resume]").hidden = !["paused", "stopped", "failed"].includes(
      r.status,
    );
    row.querySelector("[data-action=stop]").hidden = !ACTIVE_STATUSES.includes(r.status);
    return row;
  });
  for (const row of rows.values()) row.remove();
  rowElements.forEach((row, at) => {
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null);
  });
  const deleted = state.runs.filter((r) => r.deleted);
  $(".undo").hidden = !deleted.length;
  if ($(".undo").dataset.of !== deleted.map((r) => r.subject).join()) {
    $(".undo").dataset.of = deleted.map((r) => r.subject).join();
    $(".undo").replaceChildren(
      "Deleted; removed permanently after ten minutes: ",
      ...deleted.map((r) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "quiet";
        button.textContent = "Undo “" + r.name + "”";
        button.addEventListener("click", async () => {
          await runAction({ action: "undelete" }, r.subject);
          await loadRuns();
          openModel(r.subject);
        });
        return button;
      }),
    );
  }
  $(".differ").disabled = !overlays.size;
}

function createRunRow(ref) {
  const row = $(".row-template").content.firstElementChild.cloneNode(true);
  row.dataset.subject = ref;
  const findRun = () => state.runs.find((r) => r.subject === ref);
  row.querySelector(".name").addEventListener("click", () => {
    openModel(ref);
    if ($(".top").getBoundingClientRect().top < 0) $(".top").scrollIntoView({ behavior: "smooth" });
  });
  row.querySelector(".lay").addEventListener("change", (event) => {
    toggleOverlay(ref, event.target.checked);
  });
  const menu = row.querySelector("details");
  menu.addEventListener("toggle", () => {
    menu.classList.toggle(
      "up",
      menu.getBoundingClientRect().bottom + 280 > document.documentElement.scrollHeight - scrollY,
    );
  });
  menu.addEventListener("click", async (event) => {
    const action = event.target.closest("button")?.dataset.action,
      run = findRun();
    if (!action || !run) return;
    menu.open = false;
    if (action === "rename") return startRename(row, run);
    if (action === "use") return loadSettings(ref);
    if (action === "hide") await runAction({ action: run.hidden ? "show" : "hide" }, ref);
    else if (action === "delete") {
      const reply = await runAction({ action: "delete" }, ref);
      if (!reply.error) {
        overlays.delete(ref);
        if (ref === state.modelRef) openModel(state.defaultModel);
      }
    } else if (action === "rerun") {
      const reply = await runAction({ action: "rerun" }, ref);
      if (reply.subject) {
        await loadRuns();
        openModel(reply.subject);
      }
    } else await runAction({ action }, ref);
    await loadRuns();
  });
  return row;
}

function startRename(row, run) {
  const cell = row.querySelector(".name"),
    input = document.createElement("input");
  input.className = "renaming";
  input.value = run.name;
  input.maxLength = 80;
  input.setAttribute("aria-label", "New name");
  cell.replaceWith(input);
  input.focus();
  input.select();
  let isFinished = false;
  const end = async (commit, restoreFocus = true) => {
    // unless the focus has moved elsewhere
    if (isFinished) return;
    isFinished = true;
    input.replaceWith(cell);
    if (commit && input.value.trim() && input.value !== run.name) {
      cell.textContent = input.value;
      await runAction({ action: "rename", name: input.value }, run.subject);
      await loadRuns();
    }
    if (restoreFocus) cell.focus();
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") end(false);
  });
  input.addEventListener("blur", () => end(true, false));
}

export function initRunList() {
  root.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && root.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  addViewListener(document, "click", (event) => {
    for (const menu of root.querySelectorAll("details.menu[open]"))
      if (!menu.contains(event.target)) menu.open = false;
  });
  $(".show-hidden").addEventListener("click", () => {
    showHidden = !showHidden;
    renderRuns();
  });
}
