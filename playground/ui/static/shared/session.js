// The owner key of this browser (playground/server/session.py). If the browser denies storage, the
// server stores the key in a cookie. If that fails too, the page warns the user.
import { html, signal } from "../vendor/preact.js";
import { request } from "./api.js";
import { loadText, saveJson } from "./storage.js";
import { store } from "./store.js";

const SESSION_KEY = "transformer-playground";
const isStored = signal(true);

/** Set the owner key: the stored one, or a new one. */
export async function openSession() {
  const stored = (loadText(SESSION_KEY) ?? "").slice(0, 999), // the browser may store any text
    { owner } = await request("session/open", { stored });
  store.owner.value = owner;
  if (!saveJson(SESSION_KEY, { owner })) keepInCookie(owner);
}

/** @param {string} owner */
async function keepInCookie(owner) {
  try {
    await request("session/store", { owner });
    isStored.value = (await request("session/open", {})).owner === owner;
  } catch {
    isStored.value = false;
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
