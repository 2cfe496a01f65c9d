import { createView } from "../shared/view.js";

export const { attach, root } = createView("hub pg", [new URL("./hub.css", import.meta.url)]);
