// Publishing during training.
import { html, signal } from "../vendor/preact.js";
import { errorMessage, request } from "../shared/api.js";
import { NumberField } from "../shared/components/form.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatInteger, formatMessage, formatRelativeTime } from "../shared/format.js";
import { ACTIVE_STATUSES, store } from "../shared/store.js";
import { autoPublish, publishOptions, selectedModel, token } from "./state.js";

const EXPLANATION =
  "Commits the latest checkpoint to the branch while-training, and the final one to main. Your " +
  "token stays in memory until the run ends or the server stops; it is not written to disk.";
const minutes = signal(10);
const error = signal("");

/** Start or stop publishing the selected run, or only load its state. */
export async function updateAutoPublish(action) {
  const { model: subject, repo, license, private: isPrivate } = publishOptions.value;
  if (!subject.startsWith("run:")) {
    autoPublish.value = null;
    return;
  }
  try {
    const response = await request("hub/auto-publish", {
      owner: store.owner.value,
      subject,
      action,
      token: token.value,
      repo: repo.trim(),
      private: isPrivate,
      license: license.trim(),
      interval_minutes: minutes.value,
    });
    if (subject !== publishOptions.value.model) return;
    autoPublish.value = response.auto_publish;
    if (action !== "status") error.value = formatMessage(response.error);
  } catch (cause) {
    if (action !== "status") error.value = formatMessage(errorMessage(cause));
  }
}

/** Describe the last and the next publication. */
export function describeProgress({
  is_pushing: isPushing,
  pushed_step: pushedStep,
  seconds_since_push: age,
  seconds_until_push: delay,
}) {
  if (isPushing) return "Publishing now.";
  if (pushedStep === null) return "Nothing published yet.";
  const next = delay ? `, next in ${Math.ceil(delay / 60)} min.` : ".";
  return `Step ${formatInteger(pushedStep)} published ${formatRelativeTime(age)}${next}`;
}

export function AutoPublish() {
  const current = autoPublish.value,
    model = selectedModel.value,
    isActiveRun = model && "status" in model && ACTIVE_STATUSES.includes(model.status);
  if (!current && !isActiveRun) return null;
  const text = current
    ? `Publishes to ${current.repo}, branch ${current.branch}, every ` +
      `${current.interval_minutes} min, and to main at the end. ${describeProgress(current)}`
    : EXPLANATION;
  return html`<fieldset class="auto-publish">
    <legend>During training</legend>
    <p class="auto-publish-message pg-hint">${text}</p>
    ${
      current
        ? html`<button
            type="button"
            class="pg-button auto-publish-stop"
            onClick=${() => updateAutoPublish("stop")}
          >
            Stop publishing
          </button>`
        : html`<${NumberField}
              label="Interval in minutes"
              class="minutes"
              value=${minutes.value}
              min=${1}
              max=${120}
              isInteger
              onChange=${(value) => (minutes.value = value)}
            />
            <button
              type="button"
              class="pg-button auto-publish-start"
              onClick=${() => updateAutoPublish("start")}
            >
              Publish during training
            </button>`
    }
    <${StatusMessage}
      class="auto-publish-status"
      kind="error"
      text=${formatMessage(current?.push_error) || error.value}
    />
  </fieldset>`;
}
