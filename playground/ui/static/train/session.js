import { request } from "../shared/api.js";
import { state } from "./state.js";
import { $ } from "./view.js";

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
