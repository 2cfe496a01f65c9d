// Measurements on held-out sequences, by model, step and options. They take seconds.
import { signal, useEffect, useRef } from "../vendor/preact.js";
import { formatCount } from "../shared/format.js";
import { store } from "../shared/store.js";
import { hasSteps, measureLocally } from "./local_views.js";
import { requestView } from "./requests.js";

const SELECTION_DELAY_MS = 250; // merges the steps of a moving slider into one measurement

/**
 * @typedef {{ data?: any, error: string, isBusy: boolean, progress?: any, response: any }}
 *   Measurement `response` is what the section showed when the measurement began
 */
const measurements = signal(/** @type {Record<string, Measurement>} */ ({}));

const keyOf = (view, options) =>
  JSON.stringify([store.model.value, hasSteps() ? store.step.value : null, view, options]);

/** Return the measurement of a view for the open model and step. */
export const findMeasurement = (view, options = {}) =>
  /** @type {Measurement | undefined} */ (measurements.value[keyOf(view, options)]);

/** Measure a view. The previous result stays until the next one arrives. */
export async function measure(view, options, response) {
  const key = keyOf(view, options),
    previous = measurements.peek()[key],
    set = (changes) => {
      const measurement = { ...previous, error: "", isBusy: false, response, ...changes };
      measurements.value = { ...measurements.peek(), [key]: measurement };
    };
  if (previous?.isBusy) return;
  set({ isBusy: true });
  const onProgress = (progress) => set({ isBusy: true, progress }),
    isOfPage = view === "ablation", // unless the page cannot run the model
    local = isOfPage && (await measureLocally(options, onProgress).catch(() => null)),
    data = local || (await requestView(view, options));
  set(data.error ? { error: data.error } : { data });
}

// Measure a view while it is open, and again for each newer step. `data` is the latest
// result, also while the next one is measured.
export function useMeasurement(view, options, response) {
  const key = keyOf(view, options),
    measurement = measurements.value[key],
    model = useRef(store.model.value),
    latest = useRef(/** @type {any} */ (null));
  if (model.current !== store.model.value) latest.current = null;
  model.current = store.model.value;
  if (measurement?.data) latest.current = measurement.data;
  useEffect(() => {
    const { data, error = "", isBusy = false, response: measuredFor } = measurement ?? {},
      isCurrent = error ? measuredFor === response : data && data.step >= response.step;
    if (isBusy || isCurrent) return;
    const timer = setTimeout(
      () => measure(view, options, response),
      latest.current ? SELECTION_DELAY_MS : 0,
    );
    return () => clearTimeout(timer);
  }, [key, measurement, response]);
  const { data = latest.current, error = "", isBusy = false, progress } = measurement ?? {};
  return { data, error, isBusy, progress, isStale: !measurement?.data };
}

export function describeSample({ sequences, lengths: [shortest, longest] }) {
  const length =
    shortest === longest ? formatCount(shortest, "token") : `${shortest} to ${longest} tokens`;
  return `over ${formatCount(sequences, "held-out sequence")} of ${length}`;
}
