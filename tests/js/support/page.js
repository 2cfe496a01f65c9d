// One mounted component, and the replies of a server to its requests.
import assert from "node:assert/strict";
import { beforeEach, mock } from "node:test";

import { enter, makeBox, press, settle } from "./dom.js";
import { render } from "../../../playground/ui/static/vendor/preact.js";

/** The element of the mounted component, a new one for each test. */
export let box;
/** The replies of the server, by route: a value, or a function of the payload. */
export let responses = {};
/** The requests of the page, as [route, payload, headers]. */
export let sent = [];

beforeEach(() => {
  unmount();
  box = makeBox();
});

export async function mount(view) {
  render(view, box);
  await settle();
}

export function unmount() {
  if (box) render(null, box);
}

/** Answer every request with the response of its route, an empty one by default. */
export function serve(byRoute = {}) {
  responses = byRoute;
  sent = [];
  mock.restoreAll();
  return mock.method(globalThis, "fetch", async (url, { body, headers }) => {
    const [path] = url.href.split("?"),
      route = path.split(/playground\/(?:api\/)?/).at(-1),
      payload = headers["Content-Type"] === "application/json" ? JSON.parse(body) : body;
    sent.push([route, payload, headers]);
    const response = responses[route];
    const reply = typeof response === "function" ? await response(payload) : response;
    return reply instanceof Response ? reply : Response.json(reply ?? {});
  });
}

export async function waitFor(isDone) {
  const deadline = Date.now() + 10_000;
  while (!isDone() && Date.now() < deadline) await settle();
  assert.ok(isDone());
}

const wordsOf = (element) => element.textContent.trim().replace(/\s+/g, " ");

/** The text of the first element, "" without one. */
export const text = (selector) => [...box.querySelectorAll(selector)].map(wordsOf)[0] ?? "";

/** The texts of all elements. */
export const texts = (selector) => [...box.querySelectorAll(selector)].map(wordsOf);

/** The button with this text. */
export const button = (label) =>
  [...box.querySelectorAll("button")].find((each) => wordsOf(each) === label);

const find = (target) => (typeof target === "string" ? box.querySelector(target) : target);

/** Click an element or the first one of a selector. */
export async function click(target) {
  find(target).click();
  await settle();
}

export async function key(target, name) {
  press(find(target), name);
  await settle();
}

export async function fill(target, value) {
  enter(find(target), value);
  await settle();
}

/** The arguments of each call of a mocked function. */
export const callsOf = (mocked) => mocked.mock.calls.map((call) => call.arguments);

export async function submit(selector = "form") {
  const event = new Event("submit", { bubbles: true, cancelable: true });
  find(selector).dispatchEvent(event);
  await settle();
}
