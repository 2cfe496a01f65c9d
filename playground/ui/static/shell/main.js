// The header of the page: the model, step and input of all tabs, the skip link and the theme.
import { effect, html, render } from "../vendor/preact.js";
import { createView } from "../shared/view.js";
import { hasModelBar, ModelBar } from "./model_bar.js";
import { initSkipLink, initThemeSwitch } from "./theme.js";

const { root, attach } = createView("", [new URL("./shell.css", import.meta.url)]);

/** Show the header in the element of its Gradio component. @param {any} component */
export default async function main(component) {
  initSkipLink();
  initThemeSwitch();
  render(html`<${ModelBar} />`, root);
  effect(() => void document.body.classList.toggle("without-model-bar", !hasModelBar()));
  await attach(component);
}
