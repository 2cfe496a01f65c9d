import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import "./support/dom.js";
import { Poller, poller as pagePoller } from "../../playground/ui/static/shared/poller.js";

let time, isHidden, request, poller;

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  time = 0;
  isHidden = false;
  request = mock.fn(async (route) => ({ route }));
  poller = new Poller({ request, isHidden: () => isHidden, now: () => time, random: () => 0.5 });
});

async function advance(ms) {
  time += ms;
  mock.timers.tick(ms);
  for (let i = 0; i < 20; i++) await Promise.resolve();
}
const subscription = (options = {}) => ({
  route: "runs/list",
  payload: () => ({ owner: "o" }),
  intervalMs: 1000,
  onData: mock.fn(),
  onError: mock.fn(),
  ...options,
});

test("a subscription is polled at once and then at its interval", async () => {
  const one = subscription();
  poller.subscribe(one);
  await advance(0);
  await advance(999);
  assert.equal(one.onData.mock.callCount(), 1);
  await advance(1);
  assert.equal(one.onData.mock.callCount(), 2);
  assert.deepEqual(one.onData.mock.calls[0].arguments, [{ route: "runs/list" }]);
});

test("the interval after a response is that of the state that the response sets", async () => {
  let interval = 2000;
  const one = subscription({ intervalMs: () => interval, onData: mock.fn(() => (interval = 60)) });
  poller.subscribe(one);
  await advance(0);
  await advance(60);
  assert.equal(one.onData.mock.callCount(), 2);
});

test("equal requests are sent once", async () => {
  const [one, other] = [subscription(), subscription()];
  poller.subscribe(one);
  poller.subscribe(other);
  poller.subscribe(subscription({ payload: () => ({ owner: "p" }) }));
  await advance(0);
  assert.equal(request.mock.callCount(), 2);
  assert.equal(one.onData.mock.callCount() + other.onData.mock.callCount(), 2);
});

test("nothing is polled while the page or the subscriber is hidden", async () => {
  isHidden = true;
  const one = subscription();
  poller.subscribe(one);
  await advance(5000);
  assert.equal(request.mock.callCount(), 0);
  isHidden = false;
  poller.wakeAll();
  await advance(0);
  assert.equal(request.mock.callCount(), 1);

  let isVisible = false;
  poller.subscribe(subscription({ route: "other", isVisible: () => isVisible }));
  await advance(0);
  assert.equal(request.mock.callCount(), 1);
  isVisible = true;
  await advance(1000);
  assert.deepEqual(
    request.mock.calls.map((call) => call.arguments[0]),
    ["runs/list", "runs/list", "other"],
  );
});

test("a subscription without a payload waits for its next round", async () => {
  let payload = null;
  poller.subscribe(subscription({ payload: () => payload }));
  await advance(0);
  assert.equal(request.mock.callCount(), 0);
  payload = { owner: "o" };
  await advance(1000);
  assert.equal(request.mock.callCount(), 1);
});

test("errors double the delay up to a limit, and a response resets it", async () => {
  request.mock.mockImplementation(async () => {
    throw new Error("offline");
  });
  const one = subscription();
  poller.subscribe(one);
  await advance(0);
  assert.equal(one.onError.mock.callCount(), 1);
  await advance(1999);
  assert.equal(one.onError.mock.callCount(), 1);
  await advance(1);
  assert.equal(one.onError.mock.callCount(), 2);
  for (let i = 0; i < 10; i++) await advance(30_000);
  assert.equal(one.onError.mock.callCount(), 12);
  request.mock.mockImplementation(async () => ({}));
  await advance(30_000);
  assert.equal(one.onData.mock.callCount(), 1);
  await advance(1000);
  assert.equal(one.onData.mock.callCount(), 2);
});

test("the delay after an error has jitter", () => {
  const entry = { failures: 1, subscription: { intervalMs: 1000 } };
  const delays = [0, 0.5, 1].map((random) => new Poller({ random: () => random }).delay(entry));
  assert.deepEqual(delays.map(Math.round), [1600, 2000, 2400]);
});

test("a command polls at once, also during a request", async () => {
  let respond;
  request.mock.mockImplementation(() => new Promise((resolve) => (respond = resolve)));
  const { wake } = poller.subscribe(subscription());
  await advance(0);
  await advance(100);
  wake();
  respond({});
  await advance(0);
  await advance(0);
  assert.equal(request.mock.callCount(), 2);
  respond({});
  await advance(500);
  wake();
  await advance(0);
  assert.equal(request.mock.callCount(), 3);
});

test("a response after the end of a subscription is dropped", async () => {
  const one = subscription();
  const { unsubscribe } = poller.subscribe(one);
  mock.timers.tick(0);
  unsubscribe();
  await advance(0);
  assert.equal(request.mock.callCount(), 1);
  assert.equal(one.onData.mock.callCount(), 0);
  await advance(5000);
  assert.equal(request.mock.callCount(), 1);
});

test("the poller of the page continues when the page becomes visible", async () => {
  const wakeAll = mock.method(pagePoller, "wakeAll");
  document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(wakeAll.mock.callCount(), 1);
});

test("a subscription with an interval for hidden pages is polled there", async () => {
  isHidden = true;
  let interval = 100;
  const one = subscription({ intervalMs: () => interval, hiddenIntervalMs: 2000 });
  poller.subscribe(one);
  await advance(0);
  await advance(1999);
  assert.equal(one.onData.mock.callCount(), 1);
  await advance(1);
  assert.equal(one.onData.mock.callCount(), 2);
  isHidden = false;
  poller.wakeAll();
  await advance(0);
  assert.equal(one.onData.mock.callCount(), 3);
  interval = 300; // the next delay is the present interval
  await advance(100);
  assert.equal(one.onData.mock.callCount(), 4);
  await advance(299);
  assert.equal(one.onData.mock.callCount(), 4);
  await advance(1);
  assert.equal(one.onData.mock.callCount(), 5);
});
