import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";

import "./support/dom.js";
import {
  NO_RESPONSE,
  ServerError,
  errorMessage,
  request,
  requestWithRetry,
  upload,
} from "../../playground/ui/static/shared/api.js";

const respond = (body, { status = 200, headers = {} } = {}) =>
  new Response(JSON.stringify(body), { status, headers });

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

/** Let promises and mocked timers pass. */
async function pass(ms) {
  for (let i = 0; i < 10; i++) await Promise.resolve();
  mock.timers.tick(ms);
  for (let i = 0; i < 10; i++) await Promise.resolve();
}

test("an upload returns JSON, and a text as an error", async () => {
  const replies = [
    new Response('{"rows":2}', { headers: { "Content-Type": "application/json" } }),
    new Response("too large", { status: 413 }),
  ];
  const send = mock.method(globalThis, "fetch", async () => replies.shift());
  assert.deepEqual(await upload("datasets", "a\tb", { "X-Name": "a" }), { rows: 2 });
  assert.equal(send.mock.calls[0].arguments[0].pathname.endsWith("/datasets"), true);
  assert.equal(send.mock.calls[0].arguments[1].headers["X-Name"], "a");
  assert.deepEqual(await upload("datasets", "", {}), { error: "too large" });
});

test("a request posts JSON", async () => {
  const send = mock.method(globalThis, "fetch", async () => respond({ runs: [] }));
  assert.deepEqual(await request("runs/list", { owner: "o" }), { runs: [] });
  const [, options] = send.mock.calls[0].arguments;
  assert.equal(options.method, "POST");
  assert.equal(options.body, '{"owner":"o"}');
});

test("an error status fails", async () => {
  mock.method(globalThis, "fetch", async () => respond({}, { status: 500 }));
  await assert.rejects(request("runs/list", {}), /the server answered 500/);
});

test("a rate limit delays the request", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const responses = [
    respond({}, { status: 429, headers: { "Retry-After": "2" } }),
    respond({ a: 1 }),
  ];
  const send = mock.method(globalThis, "fetch", async () => responses.shift());
  const promise = request("runs/list", {});
  await pass(1999);
  assert.equal(send.mock.callCount(), 1);
  await pass(1);
  assert.deepEqual(await promise, { a: 1 });
});

test("a rate limit beyond the timeout fails", async () => {
  const headers = { "Retry-After": "60" };
  mock.method(globalThis, "fetch", async () => respond({}, { status: 429, headers }));
  await assert.rejects(request("runs/list", {}, 1000), /429/);
});

test("a busy server is requested again with growing delays", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const send = mock.fn(async () =>
    send.mock.callCount() < 3 ? { retryable: true, error: "busy" } : { job: "j" },
  );
  const onDelay = mock.fn();
  const promise = requestWithRetry(send, () => true, onDelay);
  await pass(500);
  await pass(1000);
  await pass(2000);
  assert.deepEqual(await promise, { job: "j" });
  assert.equal(send.mock.callCount(), 4);
  assert.deepEqual(onDelay.mock.calls[0].arguments, ["busy"]);
});

test("an outdated request is not repeated", async () => {
  const send = mock.fn(async () => ({ retryable: true, error: "busy" }));
  await requestWithRetry(send, () => false);
  assert.equal(send.mock.callCount(), 1);
});

test("only errors of the server have words for the user", () => {
  assert.equal(errorMessage(new ServerError("this name is taken")), "this name is taken");
  assert.equal(errorMessage(new TypeError("failed to fetch")), NO_RESPONSE);
});
