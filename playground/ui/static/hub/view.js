import { createView } from "../shared/view.js";

export const { attach, root } = createView('<div class="hub pg"></div>', [
  new URL("./hub.css", import.meta.url),
]);
