import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { waitFor } from "./support/page.js";
import { Job, isActive } from "../../playground/ui/static/shared/job.js";

let responses, sent, rows, job;

const request = async (route, payload) => {
  sent.push([route, payload]);
  const next = responses[route]?.shift();
  if (next instanceof Error) throw next;
  return next ?? {};
};

beforeEach(() => {
  sent = [];
  rows = [];
  responses = { "jobs/submit": [{ job: "j" }], "jobs/poll": [], "jobs/cancel": [] };
  job = new Job({ request, onRows: (more) => rows.push(...more) });
});

test("a job reports its progress and its rows, and resolves to its result", async () => {
  responses["jobs/poll"] = [
    { status: "waiting", queue_position: 2, rows: [], cursor: 0 },
    {
      status: "working",
      message: "Reading",
      done: 1,
      total: 2,
      unit: "files",
      rows: [1],
      cursor: 1,
    },
    { status: "done", result: { n: 5 }, rows: [2], cursor: 2 },
  ];
  const seen = [];
  job.state.subscribe((state) => seen.push([state.status, state.message, state.done, state.total]));
  assert.deepEqual(await job.run("o", { kind: "info" }), { n: 5 });
  assert.deepEqual(seen, [
    ["idle", "", 0, 0],
    ["working", "Starting", 0, 0],
    ["waiting", "Queued: 2 ahead", 0, 0],
    ["working", "Reading", 1, 2],
    ["done", "", 0, 0],
  ]);
  assert.deepEqual(rows, [1, 2]);
  assert.deepEqual(sent[0], ["jobs/submit", { owner: "o", kind: "info" }]);
  assert.deepEqual(
    sent.slice(1).map(([, payload]) => payload.cursor),
    [0, 0, 1],
  );
  assert.equal(isActive(job.state.value), false);
});

test("an error of the server becomes a message, with Retry if that may help", async () => {
  responses["jobs/submit"] = [{ error: "this name is taken" }];
  assert.equal(await job.run("o", {}), null);
  assert.deepEqual(
    [job.state.value.status, job.state.value.message, job.state.value.canRetry],
    ["failed", "This name is taken.", false],
  );
  responses["jobs/submit"] = [{ job: "j" }, { job: "j" }];
  responses["jobs/poll"] = [
    { status: "failed", message: "the Hub timed out", retryable: true },
    { status: "done", result: 1 },
  ];
  await job.run("o", {});
  assert.equal(job.state.value.canRetry, true);
  assert.equal(await job.retry(), 1);
});

test("a lost connection is not the end of a job", async () => {
  responses["jobs/poll"] = [new TypeError("offline"), { status: "done", result: 1 }];
  assert.equal(await job.run("o", {}), 1);
  responses["jobs/submit"] = [new TypeError("offline")];
  assert.equal(await job.run("o", {}), null);
  assert.equal(job.state.value.message, "The server did not respond; try again.");
  assert.equal(job.state.value.canRetry, true);
});

test("a job that the server forgot fails", async () => {
  responses["jobs/poll"] = [{ error: "this job is no longer stored", retryable: true }];
  await job.run("o", {});
  assert.equal(job.state.value.message, "This job is no longer stored.");
});

test("a cancelled job is no error", async () => {
  responses["jobs/poll"] = [{ status: "working" }, { status: "failed", message: "cancelled" }];
  const promise = job.run("o", {});
  const stop = job.state.subscribe(
    (state) => state.status === "working" && job.current && job.cancel(),
  );
  assert.equal(await promise, null);
  stop();
  assert.equal(job.state.value.status, "cancelled");
  assert.equal(sent.filter(([route]) => route === "jobs/cancel").length, 1);
});

test("a newer job replaces the one before, and cancels it", async () => {
  responses["jobs/submit"] = [{ job: "first" }, { job: "second" }];
  const first = job.run("o", { number: 1 });
  await waitFor(() => sent.some(([route]) => route === "jobs/poll"));
  responses["jobs/poll"] = [{ status: "done", result: "second" }];
  assert.equal(await job.run("o", { number: 2 }), "second");
  assert.equal(await first, null);
  assert.deepEqual(
    sent.filter(([route]) => route === "jobs/cancel").map(([, payload]) => payload.job),
    ["first"],
  );
});

test("a job that was reset while it was submitted is cancelled", async () => {
  let submit;
  const slow = new Job({
    request: (route, payload) => {
      sent.push([route, payload]);
      return route === "jobs/submit"
        ? new Promise((resolve) => (submit = resolve))
        : Promise.resolve({});
    },
  });
  const promise = slow.run("o", {});
  await waitFor(() => submit);
  slow.reset();
  submit({ job: "late" });
  assert.equal(await promise, null);
  assert.deepEqual(sent.at(-1), ["jobs/cancel", { owner: "o", job: "late" }]);
  assert.equal(slow.state.value.status, "idle");
});

test("the reason of a delay is shown", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const busy = { retryable: true, error: "too many jobs are running" };
  responses["jobs/submit"] = [busy, busy, busy, { job: "j" }];
  responses["jobs/poll"] = [{ status: "done", result: 1 }];
  const messages = [];
  job.state.subscribe((state) => messages.push(state.message));
  const promise = job.run("o", {});
  for (let i = 0; i < 60; i++) {
    await Promise.resolve();
    mock.timers.tick(200);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(await promise, 1);
  mock.timers.reset();
  assert.ok(messages.includes("Too many jobs are running."));
});

test("a page that was loaded again follows the job that it had submitted", async () => {
  const submitted = [];
  job = new Job({
    request,
    onRows: (more) => rows.push(...more),
    onSubmit: (id, payload) => submitted.push([id, payload]),
  });
  responses["jobs/poll"] = [
    { status: "done", result: 1, rows: [], cursor: 0 },
    { status: "working", rows: [1], cursor: 1 },
    { status: "done", result: 2, rows: [2], cursor: 2 },
  ];
  await job.run("o", { kind: "info" });
  assert.deepEqual(submitted, [["j", { kind: "info" }]]);
  assert.equal(await job.resume("o", "j", { kind: "info" }), 2);
  assert.deepEqual(rows, [2], "the first poll only finds out whether the server has the job");
  assert.equal(job.state.value.status, "done");

  job.reset();
  responses["jobs/poll"] = [{ error: "there is no such job" }];
  assert.equal(await job.resume("o", "j", {}), null);
  assert.equal(job.state.value.status, "idle");
});
