// The state of the tab. Components read the signals.
import { computed, signal } from "../vendor/preact.js";
import { Job } from "../shared/job.js";
import { store } from "../shared/store.js";

const ROUTES = { submit: "hub/submit", poll: "hub/poll", cancel: "hub/cancel" };

export const createHubJob = () => new Job(ROUTES);

export const session = signal({ way: "", signed_in: false, name: "", lasting: true });
/** The account of the token: {name, writes}; null if the token is not verified. */
export const account = signal(/** @type {any} */ (null));
export const token = signal("");
/** The choices of the form "Publish a model". */
export const choice = signal({
  model: "",
  checkpoint: "",
  repo: "",
  license: "",
  private: false,
  data: false,
});
/** The changes that publishing would make, with the request that they belong to. */
export const plan = signal(/** @type {any} */ (null));
/** The result of the last publication: {url, step}. */
export const published = signal(/** @type {any} */ (null));
/** The state of publishing during training; null if it is off. */
export const autoPublish = signal(/** @type {any} */ (null));
/** The repository on display: {repo, revision}, and its facts once they are loaded. */
export const opened = signal(/** @type {any} */ (null));

export const models = computed(() => [...store.runs.value, ...store.checkpoints.value]);
export const selectedModel = computed(() =>
  models.value.find((each) => each.subject === choice.value.model),
);
export const canPublish = computed(() => session.value.signed_in || Boolean(token.value.trim()));

/** Run a job of the Hub. Only jobs that need a token send it, so that an invalid one affects no
 * others. */
export function runHubJob(job, task) {
  const needsToken = ["account", "plan", "push"].includes(task.kind) || account.value;
  return job.run(store.owner.value, { token: needsToken ? token.value : "", ...task });
}
