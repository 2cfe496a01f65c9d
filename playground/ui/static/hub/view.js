import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, attach, root } = createView(template, [new URL("./hub.css", import.meta.url)]);
