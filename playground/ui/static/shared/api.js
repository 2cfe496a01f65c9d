// Requests to the JSON routes of the server (playground/server/routes.py).

export const NO_RESPONSE = "the server did not respond; try again";
const DEFAULT_TIMEOUT_MS = 20_000;
const MAX_RETRY_MS = 150_000;

/** An error that the server reported in words for the user. */
export class ServerError extends Error {
  /**
   * @param {string} message
   * @param {{ canRetry?: boolean, code?: string }} [options] `code` identifies the error
   */
  constructor(message, { canRetry = false, code = "" } = {}) {
    super(message);
    this.name = "ServerError";
    this.canRetry = canRetry;
    this.code = code;
  }
}

/** @param {number} ms @returns {Promise<void>} */
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Wait, but not after the browser is online again. @param {number} ms @returns {Promise<void>} */
const sleepUntilOnline = (ms) =>
  new Promise((resolve) => {
    const timer = setTimeout(end, ms);
    function end() {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      resolve();
    }
    window.addEventListener("online", end);
  });

/** The URL of playground/ on the server; this is playground/static/VERSION/shared/api.js. */
export const baseUrl = new URL("../../../", import.meta.url);

/**
 * Send a request. A rate limit delays the request instead of failing it.
 * @param {URL} url @param {RequestInit} options @param {number} [timeoutMs]
 */
async function send(url, options, timeoutMs = DEFAULT_TIMEOUT_MS) {
  const until = Date.now() + timeoutMs;
  for (;;) {
    const response = await fetch(url, { ...options, signal: AbortSignal.timeout(timeoutMs) }),
      waitMs = 1000 * (Number(response.headers.get("Retry-After")) || 1);
    if (response.status !== 429 || Date.now() + waitMs > until) return response;
    await sleep(waitMs);
  }
}

/**
 * Send a request to a JSON route.
 * @param {string} name @param {object} payload @param {number} [timeoutMs] @returns {Promise<any>}
 */
export async function request(name, payload, timeoutMs) {
  const response = await send(
    new URL("api/" + name, baseUrl),
    {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(payload),
    },
    timeoutMs,
  );
  // the response to what no longer exists is an error in words
  if (!response.ok && response.status !== 404)
    throw new Error("the server answered " + response.status);
  return response.json();
}

/**
 * Request a file below playground/. Return its bytes and headers, or the error of the server.
 * @param {string} route @param {Record<string, any>} params @param {Record<string, string>} headers
 * @returns {Promise<any>}
 */
export async function download(route, params, headers) {
  const url = new URL(route, baseUrl);
  url.search = new URLSearchParams(params).toString();
  const response = await send(url, { headers });
  if (!response.ok) return response.json();
  return { bytes: await response.arrayBuffer(), headers: response.headers };
}

/**
 * Send a request. If it fails, the response is an error.
 * @param {string} name @param {object} payload @param {number} [timeoutMs] @returns {Promise<any>}
 */
export const requestOrError = (name, payload, timeoutMs) =>
  request(name, payload, timeoutMs).catch(() => ({ error: NO_RESPONSE }));

/**
 * Send a file or a text to a route below playground/. Return the response, or its text as an error.
 * @param {string} route @param {Blob | string} body @param {Record<string, string>} headers
 * @param {AbortSignal} [signal] @returns {Promise<any>}
 */
export async function upload(route, body, headers, signal) {
  const response = await fetch(new URL(route, baseUrl), { method: "POST", body, headers, signal });
  return response.headers.get("content-type")?.includes("json")
    ? response.json()
    : { error: await response.text() };
}

/**
 * Repeat a request with increasing delays while it is `retryable` and `isCurrent()` holds; at once
 * when the browser is online again. `onDelay` receives the reason for the delay.
 * @param {() => Promise<any>} send @param {() => boolean} [isCurrent]
 * @param {(reason: string) => void} [onDelay]
 */
export async function requestWithRetry(send, isCurrent = () => true, onDelay = () => {}) {
  const since = Date.now();
  for (let waitMs = 500; ; waitMs = Math.min(5000, 2 * waitMs)) {
    const response = await send();
    if (!response.retryable || Date.now() - since > MAX_RETRY_MS || !isCurrent()) return response;
    if (Date.now() - since > 1000) onDelay(response.error);
    await sleepUntilOnline(waitMs);
    if (!isCurrent()) return response;
  }
}

/** Return the message of an error for the user. @param {unknown} error */
export const errorMessage = (error) => (error instanceof ServerError ? error.message : NO_RESPONSE);
