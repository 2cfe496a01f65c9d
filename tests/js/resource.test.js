import assert from "node:assert/strict";
import { test } from "node:test";

import "./support/dom.js";
import { Resource } from "../../playground/ui/static/shared/resource.js";

const read = ({ data, error, isPending }) => [data.value, error.value, isPending.value];

test("data stays beside the error of a later request", async () => {
  const resource = new Resource(async (n) => (n ? { n } : { error: "no n" }));
  assert.deepEqual(read(resource), [null, "", false]);
  const answer = resource.load(1);
  assert.deepEqual(read(resource), [null, "", true]);
  assert.deepEqual(await answer, { n: 1 });
  assert.deepEqual(read(resource), [{ n: 1 }, "", false]);
  await resource.load(0);
  assert.deepEqual(read(resource), [{ n: 1 }, "No n.", false]);
  resource.clear();
  assert.deepEqual(read(resource), [null, "", false]);
});

test("the answer to an earlier request is dropped", async () => {
  const replies = [];
  const resource = new Resource(
    (n) => new Promise((resolve) => replies.push(() => resolve({ n }))),
  );
  const [first, second] = [resource.load(1), resource.load(2)];
  replies[1]();
  replies[0]();
  assert.deepEqual([await first, await second], [null, { n: 2 }]);
  assert.deepEqual(read(resource), [{ n: 2 }, "", false]);
  const third = resource.load(3);
  resource.clear();
  replies[2]();
  assert.equal(await third, null);
  assert.deepEqual(read(resource), [null, "", false]);
});

test("a request waits until there was no other one for a while", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const sent = [];
  const resource = new Resource(async (n) => {
    sent.push(n);
    return { n };
  });
  const answers = [1, 2].map((n) => resource.loadAfter(100, n));
  context.mock.timers.tick(100);
  assert.deepEqual([await Promise.all(answers), sent], [[null, { n: 2 }], [2]]);
  const cleared = resource.loadAfter(100, 3);
  resource.clear();
  context.mock.timers.tick(100);
  assert.deepEqual([await cleared, sent], [null, [2]]);
});

test("a lost request is sent again when the browser is online", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let sent = 0;
  const resource = new Resource(async () => (++sent < 2 ? { error: "lost", retryable: true } : {}));
  const answer = resource.load();
  for (let i = 0; i < 9; i++) await Promise.resolve();
  window.dispatchEvent(new Event("online"));
  await answer;
  assert.equal(sent, 2);
});

test("a request is sent again after a lost connection", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  let sent = 0;
  const resource = new Resource(async () => {
    sent += 1;
    if (sent < 4) throw new TypeError("Failed to fetch");
    return { sent };
  });
  const answer = resource.load();
  for (const ms of [500, 1000, 2000]) {
    for (let i = 0; i < 9; i++) await Promise.resolve();
    context.mock.timers.tick(ms);
  }
  assert.match(resource.error.value, /did not respond/);
  assert.deepEqual(await answer, { sent: 4 });
  assert.deepEqual(read(resource), [{ sent: 4 }, "", false]);
});
