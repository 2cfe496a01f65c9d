import { request } from "../shared/api.js";
import { openTab, TAB_SELECTOR } from "../shared/common.js";
import { state } from "./state.js";
import { $ } from "./view.js";

// Restore the last tab, unless a link selects one.
const LAST_TAB_KEY = "transformer-playground-tab",
  LINK_PARAMS = [
    "inspect",
    "compare",
    "lab",
    "hub",
    "watch",
    "settings",
    "learn",
    "bug",
    "embed",
    "model",
  ];
export function restoreTab() {
  if (window.playground.returned) return;
  window.playground.returned = true;
  let tab = "";
  try {
    tab = localStorage.getItem(LAST_TAB_KEY) || "";
  } catch (error) {
    /* this browser has no storage */
  }
  const query = new URLSearchParams(location.search);
  if (tab && tab !== "Train" && !LINK_PARAMS.some((name) => query.has(name)))
    setTimeout(() => openTab(tab), 0);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(TAB_SELECTOR);
    try {
      if (button) localStorage.setItem(LAST_TAB_KEY, button.textContent.trim());
    } catch (error) {
      /* likewise */
    }
  });
}

// If the browser denies storage, the server stores the session in a cookie. If that fails too, warn
// the user.
let storedOwner = ""; // in this closure only: no other script of the page needs it
export async function keepSession() {
  if (!state.owner || document.documentElement.dataset.embed || storedOwner === state.owner) return;
  storedOwner = state.owner;
  try {
    localStorage.setItem("transformer-playground-probe", "1");
    localStorage.removeItem("transformer-playground-probe");
    return;
  } catch (error) {
    /* no storage */
  }
  let reply;
  try {
    await request("session/store", { owner: state.owner });
    reply = await request("session/is-stored", { owner: state.owner });
  } catch (error) {
    storedOwner = "";
    return;
  } // the next value tries again
  const inFrame = window.top !== window,
    box = $(".visit-note"),
    link = document.createElement("a");
  box.hidden = reply.is_stored;
  box.textContent =
    "This browser stores nothing for this page" +
    (inFrame ? " inside a frame" : "") +
    ". After a reload your runs will not be listed. ";
  if (!inFrame) {
    box.append("Allow this page to store site data to keep them.");
    return;
  }
  link.href = location.origin + location.pathname;
  link.target = "_blank";
  link.rel = "noopener";
  link.textContent = "Open the page in a new tab";
  box.append(link, " to keep them.");
}
