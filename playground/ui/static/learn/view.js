import { createView } from "../shared/view.js";

export const { attach, root } = createView("learn pg", [
  new URL("../shared/diagram/diagram.css", import.meta.url),
  new URL("./learn.css", import.meta.url),
]);
