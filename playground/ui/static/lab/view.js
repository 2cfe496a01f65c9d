import { createView } from "../shared/view.js";

export const { attach, root } = createView("lab pg", [new URL("./lab.css", import.meta.url)]);
