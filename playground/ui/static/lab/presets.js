import { setMessage } from "../shared/common.js";
import { formatCount } from "../shared/format.js";
import { el, setText } from "../shared/dom.js";
import { addPeriod, syncRows } from "./elements.js";
import { renderSettings } from "./experiment_form.js";
import { openExperiment } from "./experiments.js";
import { requestExperiments } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export const formatEstimate = (estimate) =>
  !estimate
    ? ""
    : estimate.seconds === null
      ? "duration unknown"
      : "about " +
        (estimate.seconds < 120
          ? Math.max(1, Math.round(estimate.seconds)) + " s"
          : Math.round(estimate.seconds / 60) + " min");

export async function loadPresets() {
  const reply = await requestExperiments("experiments/presets");
  if (reply.error) {
    setMessage($(".form-note"), addPeriod(reply.error), "error");
    return;
  }
  syncRows(
    $(".questions"),
    reply.questions,
    (each) => each.name,
    createPresetItem,
    (item, each) => {
      item.dataset.experiment = each.experiment || "";
      setText(
        item.querySelector(".takes"),
        each.missing
          ? addPeriod(each.missing)
          : formatCount(each.runs, "run") + " · " + formatEstimate(each.estimate),
      ).title = each.estimate ? addPeriod(each.estimate.message) : "";
      const button = item.querySelector(".run-it");
      setText(button, each.experiment ? "Open" : "Run").setAttribute(
        "aria-label",
        (each.experiment ? "Open: " : "Run: ") + each.title,
      );
      button.disabled = Boolean(each.missing);
    },
  );
  if (!state.variableSettings.length) {
    state.variableSettings = reply.settings;
    renderSettings();
  }
}
function createPresetItem(each) {
  const button = el("button", { type: "button", className: "quiet run-it" }),
    about = el(
      "details",
      {},
      el("summary", { textContent: each.title }),
      el("p", { textContent: each.why }),
      el("p", {
        className: "varied",
        textContent:
          each.varied +
          (each.kind === "lengths"
            ? "; then evaluated on sequences longer than the training sequences"
            : ""),
      }),
    );
  const item = el("li", {}, about, el("span", { className: "takes" }), button);
  button.addEventListener("click", async () => {
    if (item.dataset.experiment) {
      openExperiment(item.dataset.experiment, true);
      return;
    }
    button.disabled = true;
    await submitExperiment({ question: each.name }, $(".form-note"));
    button.disabled = false;
  });
  return item;
}
// Start an experiment and open it. Return the response.
async function submitExperiment(payload, box) {
  const reply = await requestExperiments("experiments/submit", payload);
  setMessage(box, addPeriod(reply.error || ""), "error");
  if (reply.error) return reply;
  openExperiment(reply.experiment, true);
  return reply;
}
