// Overlaid curves.
import { cssVariable } from "../shared/palette.js";
import { request } from "../shared/api.js";
import { overlayColor, MAX_OVERLAYS } from "./curves.js";
import { scheduleRender } from "./rendering.js";
import { renderRuns } from "./run_list.js";
import { state } from "./state.js";
import { overlays, TERMINAL_STATUSES } from "./status.js";
import { $ } from "./view.js";

export function toggleOverlay(ref, isOn) {
  if (isOn)
    overlays.set(ref, {
      colorIndex: Array.from({ length: MAX_OVERLAYS }).findIndex(
        (_, colorIndex) => ![...overlays.values()].some((o) => o.colorIndex === colorIndex),
      ),
      curve: null,
    });
  else overlays.delete(ref);
  renderRuns();
  renderLegend();
  scheduleRender();
  fetchOverlays(true);
}

// The browser stores the overlays, like the open model.
const OVERLAYS_KEY = "transformer-playground-laid";
let overlaysRestored = false; // until then, an empty overlay list has no meaning
export function loadSavedOverlays() {
  try {
    return JSON.parse(localStorage.getItem(OVERLAYS_KEY) || "[]").filter((s) =>
      state.runs.some((r) => r.subject === s && !r.deleted),
    );
  } catch (error) {
    return [];
  }
}
export function setOverlays(subjects) {
  overlaysRestored = true;
  overlays.clear();
  subjects
    .filter((s) => s !== state.modelRef)
    .slice(0, MAX_OVERLAYS)
    .forEach((s, colorIndex) => overlays.set(s, { colorIndex, curve: null }));
  renderRuns();
  fetchOverlays(true);
}

export async function fetchOverlays(force = false) {
  const isActive = (s, o) =>
    !TERMINAL_STATUSES.includes(o.status) ||
    state.runs.some((r) => r.subject === s && r.status !== o.status);
  const refs = [...overlays]
    .filter(([s, o]) => s !== state.modelRef && (force || !o.curve || isActive(s, o)))
    .map(([s]) => s);
  overlays.delete(state.modelRef);
  if (overlaysRestored || overlays.size)
    try {
      localStorage.setItem(OVERLAYS_KEY, JSON.stringify([...overlays.keys()]));
    } catch (error) {
      /* this browser has no storage */
    }
  if (refs.length) {
    let response;
    try {
      response = await request("runs/curves", { owner: state.owner, subjects: refs });
    } catch (error) {
      return;
    }
    for (const c of response.curves)
      if (overlays.has(c.subject))
        Object.assign(overlays.get(c.subject), { curve: c, status: c.status, name: c.name });
    scheduleRender();
  }
  renderLegend();
}

export function renderLegend() {
  const box = $(".overlay-legend"),
    name =
      (state.runs.find((r) => r.subject === state.modelRef) || state.lastResponse).name ||
      "on show";
  box.hidden = !overlays.size;
  const entry = (color, text, ref, dashed) => {
    const item = document.createElement("span"),
      swatch = document.createElement("i"),
      words = document.createElement("span");
    item.className = "entry";
    swatch.style.borderTopColor = color;
    swatch.style.borderTopStyle = dashed ? "dashed" : "solid";
    words.textContent = text;
    words.title = text;
    item.append(swatch, words);
    if (ref) {
      const off = document.createElement("button");
      off.type = "button";
      off.textContent = "×";
      off.setAttribute("aria-label", "Take " + text + " off the curves");
      off.addEventListener("click", () => toggleOverlay(ref, false));
      item.append(off);
    }
    return item;
  };
  const nameOf = (s, o) => (state.runs.find((r) => r.subject === s) || o).name || "";
  box.replaceChildren(
    entry(cssVariable("--pg-accent"), name),
    ...[...overlays].map(([s, o]) =>
      entry(overlayColor(o.colorIndex), nameOf(s, o), s, o.colorIndex % 2),
    ),
  );
}
