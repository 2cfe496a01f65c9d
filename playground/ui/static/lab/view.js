import { createView } from "../shared/view.js";

export const { attach, root } = createView('<div class="lab pg"></div>', [
  new URL("./lab.css", import.meta.url),
]);
