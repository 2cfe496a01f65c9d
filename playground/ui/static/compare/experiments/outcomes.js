// The outcomes of replications: measured on the server once a run has ended.
import { signal } from "../../vendor/preact.js";
import { requestWithRetry } from "../../shared/api.js";
import { claims, requestAsOwner, setError } from "./state.js";

const TIMEOUT_MS = 200_000;

/** The outcomes by `outcomeKey`; null while one is computed. */
export const outcomes = signal(/** @type {Record<string, any>} */ ({}));

/** Return the key of the outcome of a claim: another experiment or step has another one. */
export const outcomeKey = ({ name, experiment, step }) => [name, experiment, step].join();

/** Request the outcomes that are missing. */
export function loadOutcomes() {
  for (const claim of claims.value)
    if (claim.state === "done" && !(outcomeKey(claim) in outcomes.value)) loadOutcome(claim);
}

async function loadOutcome(claim) {
  const key = outcomeKey(claim),
    set = (/** @type {any} */ value) => (outcomes.value = { ...outcomes.value, [key]: value });
  set(null);
  const response = await requestWithRetry(() =>
    requestAsOwner("replications/outcome", { name: claim.name }, TIMEOUT_MS),
  );
  setError("claims", response.error);
  if (response.error) {
    const { [key]: _, ...rest } = outcomes.value;
    outcomes.value = rest; // the next poll requests it again
  } else set(response);
}
