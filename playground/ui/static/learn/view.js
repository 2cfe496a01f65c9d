import { createView } from "../shared/view.js";
import template from "./template.js";

export const { $, attach, root } = createView(template, [new URL("./learn.css", import.meta.url)]);
