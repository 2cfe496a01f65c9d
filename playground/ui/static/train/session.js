// The session in this browser. If the browser denies storage, the server stores the session in a
// cookie. If that fails too, the page warns the user.
import { request } from "../shared/api.js";
import { saveText } from "../shared/storage.js";
import { html, signal } from "../vendor/preact.js";
import { state } from "./state.js";

const PROBE_KEY = "transformer-playground-probe";
let storedOwner = ""; // in this closure only: no other script of the page needs it
const isStored = signal(true);

const hasStorage = () => saveText(PROBE_KEY, "1") && saveText(PROBE_KEY, null);

export async function keepSession() {
  if (!state.owner || document.documentElement.dataset.embed || storedOwner === state.owner) return;
  storedOwner = state.owner;
  if (hasStorage()) return;
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
