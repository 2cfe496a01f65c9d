import { createView } from "../shared/view.js";

export const { attach, root } = createView("compare pg", [
  new URL("./compare.css", import.meta.url),
]);
