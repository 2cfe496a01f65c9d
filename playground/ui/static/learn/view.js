import { createView } from "../shared/view.js";

export const { attach, root } = createView('<div class="learn pg"></div>', [
  new URL("../train/diagram/diagram.css", import.meta.url),
  new URL("./learn.css", import.meta.url),
]);
