// The diff of two configurations.
import { cssVariable } from "../shared/palette.js";
import { setMessage } from "../shared/common.js";
import { formatMessage } from "../shared/format.js";
import { overlayColor } from "./curves.js";
import { fetchDetails } from "./runs.js";
import { state } from "./state.js";
import { overlays } from "./status.js";
import { $ } from "./view.js";

async function renderDiff() {
  const subjects = [state.modelRef, ...overlays.keys()].slice(0, 8),
    response = [];
  for (const s of subjects) response.push(await fetchDetails(s));
  const wrong = response.find((t) => t.error);
  if (wrong) {
    setMessage($(".runs-note"), formatMessage(wrong.error), "error");
    return;
  }
  const names = subjects.map((s, i) => response[i].name || s.split(":")[1]),
    fields = [...new Set(response.flatMap((t) => Object.keys(t.settings)))];
  const all = $(".every-field").checked,
    table = $(".differences");
  const rows = fields.filter(
    (f) => all || new Set(response.map((t) => JSON.stringify(t.settings?.[f]))).size > 1,
  );
  const line = (tag, cells) => {
    const row = document.createElement("tr");
    row.append(
      ...cells.map((text) => {
        const cell = document.createElement(tag);
        cell.textContent = text;
        return cell;
      }),
    );
    if (tag === "th")
      [...row.cells].forEach((cell, at) => {
        cell.title = cell.textContent;
        if (at)
          cell.style.borderBottom =
            "3px solid " +
            (at === 1
              ? cssVariable("--pg-accent")
              : overlayColor(overlays.get(subjects[at - 1]).colorIndex));
      });
    return row;
  };
  const changed = (t) =>
    (t.changes || [])
      .filter(([, setting]) => !["speed", "num_threads"].includes(setting))
      .map(([step, setting, value]) => setting + " " + value + " from step " + step)
      .join("; ") || "none";
  const body = rows.map((f) =>
    line("td", [f, ...response.map((t) => String(t.settings?.[f] ?? ""))]),
  );
  if (all || new Set(response.map(changed)).size > 1)
    body.push(line("td", ["changed on the way", ...response.map(changed)]));
  table.replaceChildren(line("th", ["setting", ...names]), ...body);
  $(".alike").hidden = body.length > 0;
  table.hidden = !body.length;
  if (!$(".compare").open) $(".compare").showModal();
}

export function initRunDifferences() {
  $(".differ").addEventListener("click", renderDiff);
  $(".every-field").addEventListener("change", renderDiff);
}
