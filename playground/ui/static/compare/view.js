import { createView } from "../shared/view.js";

export const { attach, root } = createView('<div class="compare pg"></div>', [
  new URL("./compare.css", import.meta.url),
]);
