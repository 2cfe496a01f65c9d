// What the modules of every tab share.
// An error message that every tab uses; `formatMessage` makes it a sentence.
export const NO_RESPONSE = "the server did not respond; try again";
export const formatNumber = (x) =>
  x === 0 ? "0" : Math.abs(x) >= 0.0001 ? String(+x.toPrecision(3)) : x.toExponential(1);
export const formatPercent = (x) =>
  x === 1 ? "100 %" : (Math.floor(x * 1000) / 10).toFixed(1) + " %";
export const formatDuration = (s) =>
  s < 59.95
    ? s.toFixed(1) + " s"
    : s < 3599.5
      ? Math.floor(Math.round(s) / 60) + " min " + (Math.round(s) % 60) + " s"
      : Math.floor(Math.round(s / 60) / 60) + " h " + (Math.round(s / 60) % 60) + " min";
export const formatAge = (s) =>
  s < 60
    ? "just now"
    : s < 3600
      ? Math.floor(s / 60) + " min"
      : s < 86400
        ? Math.floor(s / 3600) + " h"
        : Math.floor(s / 86400) + " d";
export const pluralize = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
export const formatBytes = (n) =>
  n < 1e6
    ? Math.max(1, Math.round(n / 1e3)) + " KB"
    : n < 1e9
      ? (n / 1e6).toFixed(n < 1e8 ? 1 : 0) + " MB"
      : (n / 1e9).toFixed(1) + " GB";
// Capitalize a message and end it with a period. A leading name such as gpt2 keeps its case.
export const formatMessage = (text) =>
  text
    ? (/^\S*[/_.\d]\S*\s/.test(text) ? text[0] : text[0].toUpperCase()) +
      text.slice(1) +
      (/[.!?]$/.test(text) ? "" : ".")
    : "";
// This file is playground/static/VERSION/shared/common.js.
export const baseUrl = new URL("../../../", import.meta.url);
// Send a request to the server (routes.py). Throws on failure. A rate limit (limits.py) delays the
// request instead of failing it.
export async function request(name, payload, timeoutMs = 20000) {
  const until = Date.now() + timeoutMs;
  for (;;) {
    const reply = await fetch(new URL("api/" + name, baseUrl), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(payload),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const wait = 1000 * (Number(reply.headers.get("Retry-After")) || 1);
    if (reply.status !== 429 || Date.now() + wait > until) {
      if (!reply.ok) throw new Error("the server answered " + reply.status);
      return reply.json();
    }
    await sleep(wait);
  }
}
// Repeat `send` with increasing delays, for up to 150 s, while the response has `again` and
// `isCurrent()` holds. `onDelay` receives the reason for the delay.
export async function requestWithRetry(send, isCurrent, onDelay) {
  const since = Date.now();
  for (let wait = 500; ; wait = Math.min(5000, 2 * wait)) {
    const reply = await send();
    if (!reply.again || Date.now() - since > 150000 || !isCurrent()) return reply;
    if (Date.now() - since > 1000) onDelay(reply.error);
    await sleep(wait);
    if (!isCurrent()) return reply;
  }
}
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// Wait `ms` milliseconds. A hidden page waits until it is visible again or `maxHiddenMs` have
// passed.
export function sleepWhileHidden(ms, maxHiddenMs = Infinity) {
  if (!document.hidden) return sleep(ms);
  return new Promise((resolve) => {
    const timer = maxHiddenMs < Infinity ? setTimeout(done, maxHiddenMs) : 0;
    function done() {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      resolve();
    }
    document.addEventListener("visibilitychange", done);
  });
}
export function setMessage(box, text, kind = "") {
  box.textContent = text;
  box.classList.toggle("error", kind === "error");
  delete box.dataset.lost;
}
// Set the placeholder of `box` to the suggestion, and also its text if the user has not edited it.
// Returns whether the text changed.
export function syncSuggestion(box, suggestion) {
  if (!suggestion || box.placeholder === suggestion) return false;
  const isUntouched = box.value === box.placeholder;
  box.placeholder = suggestion;
  if (isUntouched) box.value = suggestion;
  return isUntouched;
}
// A link that opens this page with `content` in the query parameter `name`.
export const buildLink = (name, content) =>
  location.origin +
  location.pathname +
  "?" +
  name +
  "=" +
  encodeURIComponent(typeof content === "string" ? content : JSON.stringify(content));
// Return a query parameter and remove it from the address, so that a reload does not apply it
// again.
export function takeQueryParam(name) {
  const address = new URL(location),
    text = address.searchParams.get(name);
  if (text === null) return null;
  address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
  return text;
}
// Limit the depth and size of untrusted state from a link.
export function sanitizeLinkState(value, depth = 0) {
  if (typeof value === "string") return value.slice(0, 4000);
  if (typeof value === "boolean" || Number.isFinite(value)) return value;
  if (value === null || typeof value !== "object" || depth > 3) return null;
  if (Array.isArray(value))
    return value.slice(0, 20).map((each) => sanitizeLinkState(each, depth + 1));
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, 20)
      .map(([name, each]) => [name, sanitizeLinkState(each, depth + 1)]),
  );
}
// The values that a tab stores in this browser, as one JSON object under `key`.
export function createStorage(key) {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem(key) || "{}") || {};
  } catch (error) {
    /* the stored value is malformed, or the browser denies storage */
  }
  return {
    storedState: values,
    loadLocal: (name) => values[name],
    saveLocal: (name, value) => {
      values[name] = value;
      try {
        localStorage.setItem(key, JSON.stringify(values));
      } catch (error) {
        /* storage is full or not available */
      }
    },
  };
}
export function readLinkState(name) {
  try {
    return sanitizeLinkState(JSON.parse(takeQueryParam(name))) || {};
  } catch (error) {
    return {};
  } // a malformed link
}
// Copy a text and confirm it in `label` for 1.5 s. If the browser denies clipboard access, show the
// text in a prompt.
export async function copyText(text, label, promptTitle) {
  label.dataset.label ||= label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch (error) {
    window.prompt(promptTitle, text);
  }
  setTimeout(() => {
    label.textContent = label.dataset.label;
  }, 1500);
  label.dataset.copied = text;
}
// Open another tab. The payload stays in `window.playground` until the tab reads it, because a tab
// is built when it is first opened.
window.playground ||= {};
export function navigate(tab, payload) {
  window.playground[tab] = payload;
  window.dispatchEvent(new CustomEvent("playground-" + tab));
  openTab(tab);
}
// A narrow page moves some tabs into a menu.
export const TAB_SELECTOR = "#tabs button[role=tab], #tabs .overflow-dropdown button";
export function openTab(tab) {
  [...document.querySelectorAll(TAB_SELECTOR)]
    .find((button) => button.textContent.trim() === tab)
    ?.click();
}
export function takeHandOff(tab) {
  const payload = window.playground[tab];
  delete window.playground[tab];
  return payload;
}
