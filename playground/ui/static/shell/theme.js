// The skip link, and the switch between the themes of Gradio.
import { loadText, saveText } from "../shared/storage.js";

const THEME_KEY = "transformer-playground-theme";

/** @param {string} theme */
function setTheme(theme) {
  document.body.classList.toggle("dark", theme === "dark");
  const button = document.querySelector(".theme-switch");
  button?.setAttribute("aria-pressed", String(theme === "dark"));
}

export function initSkipLink() {
  document.querySelector(".skip-link")?.addEventListener("click", (event) => {
    event.preventDefault();
    /** @type {NodeListOf<HTMLElement>} */
    const buttons = document.querySelectorAll("#train, #pause, #resume");
    [...buttons].find((button) => button.offsetParent)?.focus();
  });
}

export function initThemeSwitch() {
  const button = document.querySelector(".theme-switch"),
    linkTheme = new URLSearchParams(location.search).get("__theme"),
    isDark = document.body.classList.contains("dark");
  if (!button) return;
  setTheme(linkTheme || loadText(THEME_KEY) || (isDark ? "dark" : "light"));
  button.addEventListener("click", () => {
    const theme = document.body.classList.contains("dark") ? "light" : "dark";
    setTheme(theme);
    saveText(THEME_KEY, theme);
  });
}
