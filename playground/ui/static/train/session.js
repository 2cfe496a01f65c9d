// The session in this browser, which the page sends when it loads (server/session.py). If the
// browser denies storage, the server stores the session in a cookie. If that fails too, the page
// warns the user.
import { request } from "../shared/api.js";
import { saveJson } from "../shared/storage.js";
import { html, signal } from "../vendor/preact.js";
import { state } from "./state.js";

const SESSION_KEY = "transformer-playground";
let storedOwner = ""; // in this closure only: no other script of the page needs it
const isStored = signal(true);

export async function keepSession() {
  if (!state.owner || document.documentElement.dataset.embed || storedOwner === state.owner) return;
  storedOwner = state.owner;
  if (saveJson(SESSION_KEY, { owner: state.owner })) return;
  try {
    await request("session/store", { owner: state.owner });
    isStored.value = (await request("session/is-stored", { owner: state.owner })).is_stored;
  } catch {
    storedOwner = ""; // the next value tries again
  }
}

export function SessionNote() {
  const isInFrame = window.top !== window;
  return html`<p class="visit-note pg-hint" role="status" hidden=${isStored.value}>
    This browser stores nothing for this page${isInFrame && " inside a frame"}. After a reload your
    runs will not be listed.${" "}
    ${
      isInFrame
        ? html`<a href=${location.origin + location.pathname} target="_blank" rel="noopener"
              >Open the page in a new tab</a
            >
            ${" "}to keep them.`
        : "Allow this page to store site data to keep them."
    }
  </p>`;
}
