// What a model learned and when: curves, steps, runs, examples. The page loads it after the model.
import { html } from "../vendor/preact.js";
import { Curves } from "./curves.js";
import { RunList } from "./run_list.js";
import { Timeline } from "./timeline.js";

export { RecordingNote } from "./first_visit.js";
export { Samples } from "./samples.js";
export { SavedCheckpoints } from "./saved_checkpoints.js";
export const Learning = () => html`<${Curves} /><${Timeline} /><${RunList} />`;
