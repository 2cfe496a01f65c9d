// The state of the tab. Components read the signals.
import { computed, signal } from "../vendor/preact.js";
import { store } from "../shared/store.js";
import { createView } from "../shared/view.js";

export const session = signal({ method: "", signed_in: false, name: "", lasting: true });
/** The account of the token: {name, writes}; null if the token is not verified. */
export const account = signal(/** @type {any} */ (null));
export const publishOptions = signal({
  model: "",
  repo: "",
  license: "",
  private: false,
  page: false,
});
/** The preview of a publication: the changes, and the request that publishes them. */
export const plan = signal(/** @type {any} */ (null));
/** The result of the last publication: {url, step}; null before the first one. */
export const publication = signal(/** @type {any} */ (null));
/** The repository on display: {repo, revision}, and its facts once they are loaded. */
export const opened = signal(/** @type {any} */ (null));

export const models = computed(() => [...store.listedRuns.value, ...store.checkpoints.value]);
export const selectedModel = computed(() =>
  models.value.find((each) => each.subject === publishOptions.value.model),
);
export const canPublish = computed(
  () => session.value.signed_in || Boolean(store.hubToken.value.trim()),
);

/** Run a job of the Hub. Only jobs that need a token send it, so that an invalid one affects no
 * others. */
export function runHubJob(job, { kind, subject = "", ...request }) {
  const needsToken = ["account", "plan", "push"].includes(kind) || account.value;
  const token = needsToken ? store.hubToken.value : "";
  return job.run(store.owner.value, { kind, subject, request: { token, ...request } });
}

export const { attach, root } = createView("hub pg", [new URL("./hub.css", import.meta.url)]);
