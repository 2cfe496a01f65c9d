// The settings of a run in the form.
import { formatMessage } from "../shared/format.js";
import { setMessage } from "./messages.js";
import { fetchDetails } from "./runs.js";
import { gradio } from "./view.js";

const DATASET_OF_ANOTHER_OWNER =
  "This run uses a dataset of its owner. Select Your own data as the task and add your own.";

/** Fill the form with the settings of a model. @param {string} ref */
export async function loadSettings(ref) {
  const { settings, error = "" } = await fetchDetails(ref);
  if (!settings) setMessage("runs", formatMessage(error), { isError: true });
  else if (settings.task === "dataset" && !settings.dataset_sha256)
    setMessage("runs", DATASET_OF_ANOTHER_OWNER, { isError: true });
  else {
    gradio.trigger("select", { index: 0, value: settings });
    setMessage("runs", "The form now has its settings. Press Train to start a run.");
  }
}
