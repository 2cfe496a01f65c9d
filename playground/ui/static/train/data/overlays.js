// The runs whose curves are drawn over those of the open model.
import { request } from "../../shared/api.js";
import { store } from "../../shared/store.js";
import { resolveColor } from "../../shared/palette.js";
import { effect, signal, untracked } from "../../vendor/preact.js";
import { state, TERMINAL_STATUSES } from "../state.js";

/** @typedef {{ colorIndex: number, curve: any, status?: string, name?: string }} Overlay */

export const MAX_OVERLAYS = 7; // as many as the palette has colors besides that of the open run

/** By model reference. @type {{ value: Map<string, Overlay>, peek: () => Map<string, Overlay> }} */
export const overlays = signal(new Map());

/** @param {number} colorIndex */
export const overlayColor = (colorIndex) => resolveColor(colorIndex + 1);

/** Change a copy of the overlays. @param {(next: Map<string, Overlay>) => void} edit */
function changeOverlays(edit) {
  const next = new Map(overlays.peek());
  edit(next);
  overlays.value = next;
}

/** @param {Map<string, Overlay>} map */
function findFreeColor(map) {
  const used = [...map.values()].map((each) => each.colorIndex);
  return Array.from({ length: MAX_OVERLAYS }, (_, i) => i).findIndex((i) => !used.includes(i));
}

/** @param {string} ref @param {boolean} isOn */
export function toggleOverlay(ref, isOn) {
  changeOverlays((next) => {
    if (isOn) next.set(ref, { colorIndex: findFreeColor(next), curve: null });
    else next.delete(ref);
  });
  fetchOverlays({ isForced: true });
}

/** @param {string[]} refs */
export function removeOverlays(refs) {
  if (refs.length) changeOverlays((next) => refs.forEach((ref) => next.delete(ref)));
}

/** The run that was open takes the place of the overlay that is now open. */
export function swapOverlay(/** @type {string} */ opened, /** @type {string} */ previous) {
  changeOverlays((next) => {
    const { colorIndex } = /** @type {Overlay} */ (next.get(opened));
    next.delete(opened);
    next.set(previous, { colorIndex, curve: null });
  });
}

/** @param {string[]} refs */
export function setOverlays(refs) {
  const others = refs.filter((ref) => ref !== state.modelRef).slice(0, MAX_OVERLAYS);
  changeOverlays((next) => {
    next.clear();
    others.forEach((ref, colorIndex) => next.set(ref, { colorIndex, curve: null }));
  });
  fetchOverlays({ isForced: true });
}

/** Request the curves of the overlays that may have changed. */
export async function fetchOverlays({ isForced = false } = {}) {
  if (overlays.peek().has(state.modelRef)) removeOverlays([state.modelRef]);
  /** @param {[string, Overlay]} entry */
  const isCurrent = ([ref, { curve, status = "" }]) =>
    curve &&
    TERMINAL_STATUSES.includes(status) &&
    store.runs.value.every((run) => run.subject !== ref || run.status === status);
  const subjects = [...overlays.peek()]
    .filter((entry) => isForced || !isCurrent(entry))
    .map(([ref]) => ref);
  if (!subjects.length) return;
  let response;
  try {
    response = await request("runs/curves", { owner: store.owner.value, subjects });
  } catch {
    return; // the next poll of the list tries again
  }
  changeOverlays((next) => {
    for (const { subject, status, name, ...curve } of response.curves) {
      const overlay = next.get(subject);
      if (overlay) next.set(subject, { ...overlay, curve, status, name });
    }
  });
}

/** Remove the overlays of deleted runs, and keep the curves of the others up to date. */
export const followRuns = () =>
  effect(() => {
    if (!store.server.value.now) return;
    const refs = store.runs.value.map((run) => run.subject);
    untracked(() => {
      removeOverlays([...overlays.value.keys()].filter((ref) => !refs.includes(ref)));
      fetchOverlays();
    });
  });
