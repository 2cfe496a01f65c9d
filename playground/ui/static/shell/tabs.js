// The tabs of the page. The open one is part of the state of the page.
import { store } from "../shared/store.js";
import { effect } from "../vendor/preact.js";

const MOVES = { ArrowLeft: -1, ArrowRight: 1 };

/** Connect the tabs and their panels with the state. @param {(tab: string) => void} onOpen */
export function initTabs(onOpen) {
  /** @type {NodeListOf<HTMLElement>} */
  const elements = document.querySelectorAll("#tabs > [role=tab]"),
    tabs = [...elements];
  const nameOf = (/** @type {HTMLElement} */ tab) => tab.id.replace("tab-", "");
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => (store.tab.value = nameOf(tab)));
    tab.addEventListener("keydown", ({ key }) => {
      const move = MOVES[/** @type {keyof typeof MOVES} */ (key)];
      if (!move) return;
      const next = tabs[(index + move + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  }
  effect(() => {
    // the address or the storage may name a tab that does not exist
    if (!tabs.some((tab) => nameOf(tab) === store.tab.value)) store.tab.value = nameOf(tabs[0]);
    for (const tab of tabs) {
      const isOpen = nameOf(tab) === store.tab.value,
        panel = document.getElementById(tab.getAttribute("aria-controls") ?? "");
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      if (panel) panel.hidden = !isOpen;
      if (isOpen) onOpen(nameOf(tab));
    }
  });
}
