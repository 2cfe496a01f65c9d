import { createView } from "../shared/view.js";

export const { attach, root } = createView("live pg");
