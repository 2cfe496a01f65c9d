import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { settle } from "./support/dom.js";
import { box, click, key, mount, responses, serve, text, waitFor } from "./support/page.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { state } from "../../playground/ui/static/train/state.js";
import { followSelection } from "../../playground/ui/static/train/data/model_poll.js";
import {
  clearSnapshotCache,
  showStep,
  startPlayback,
  stopPlayback,
} from "../../playground/ui/static/train/data/snapshots.js";
import { Timeline } from "../../playground/ui/static/train/timeline.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const LATEST = { step: 20, samples: [] };

beforeEach(async () => {
  serve({ "runs/snapshot": ({ step }) => ({ snapshot: { step, samples: [] } }) });
  stopPlayback();
  clearSnapshotCache();
  store.step.value = null;
  store.weightSteps.value = [0, 10, 20];
  Object.assign(state, {
    modelRef: "run:1",
    status: "training",
    lastResponse: { step: 20, max_steps: 40, is_owner: true },
    pointCount: 20,
    latestSnapshot: LATEST,
    displayedSnapshot: LATEST,
    viewedStep: null,
  });
  await mount(html`<${Timeline} />`);
});
const slider = () => box.querySelector(".scrub");
const displayed = () => state.displayedSnapshot.step;

test("arrow keys show the stored steps, and the last one is the latest", async () => {
  assert.equal(text(".viewing"), "3 snapshots");
  await key(slider(), "ArrowLeft");
  assert.deepEqual([text(".viewing"), displayed(), store.step.value], ["Viewing step 10", 10, 10]);
  for (let i = 0; i < 3; i++) await key(slider(), "ArrowLeft");
  assert.deepEqual([text(".viewing"), displayed()], ["Viewing step 0", 0]);
  for (let i = 0; i < 3; i++) await key(slider(), "ArrowRight");
  assert.deepEqual([text(".viewing"), displayed()], ["3 snapshots", 20]);
});

test("a snapshot that arrives late is not drawn over that of a later key", async () => {
  const replies = {};
  responses["runs/snapshot"] = ({ step }) =>
    new Promise((resolve) => (replies[step] = () => resolve({ snapshot: { step, samples: [] } })));
  await key(slider(), "ArrowLeft");
  await key(slider(), "ArrowLeft");
  replies[0]();
  await waitFor(() => displayed() === 0);
  replies[10]();
  await settle();
  assert.equal(displayed(), 0);
});

test("a step that cannot be loaded leaves the view at the step on display", async () => {
  responses["runs/snapshot"] = { error: "its weights were removed" };
  await key(slider(), "ArrowLeft");
  assert.deepEqual([text(".rewind-note"), displayed()], ["Its weights were removed.", 20]);
  assert.deepEqual([text(".viewing"), store.step.value], ["3 snapshots", null]);
  responses["runs/snapshot"] = ({ step }) => ({ snapshot: { step, samples: [] } });
  await key(slider(), "ArrowLeft");
  assert.deepEqual([text(".viewing"), text(".rewind-note")], ["Viewing step 10", ""]);
  responses["runs/snapshot"] = { error: "its weights were removed" };
  await key(slider(), "ArrowLeft");
  assert.deepEqual([text(".viewing"), displayed(), store.step.value], ["Viewing step 10", 10, 10]);
});

test("a lost connection delays a step", async () => {
  responses["runs/snapshot"] = () => Promise.reject(new TypeError("Failed to fetch"));
  await key(slider(), "ArrowLeft");
  responses["runs/snapshot"] = ({ step }) => ({ snapshot: { step, samples: [] } });
  await waitFor(() => displayed() === 10);
  assert.equal(text(".rewind-note"), "");
});

test("the end of a run does not end the view of an earlier step", async () => {
  await key(slider(), "ArrowLeft");
  state.status = "done";
  await settle();
  assert.equal(text(".viewing"), "Viewing step 10");
  assert.equal(text(".branch"), "Branch from here");
  await click(".now");
  assert.deepEqual([displayed(), text(".branch")], [20, "Branch from step 20"]);
});

test("a replay shows every stored step and returns to the latest", async () => {
  const seen = [];
  const hasEnded = await startPlayback(
    () => 1,
    () => seen.push(displayed()),
  );
  assert.deepEqual([hasEnded, seen, state.viewedStep], [true, [0, 10, 20], null]);
});

test("a pause of the replay keeps its step", async () => {
  const ended = startPlayback(
    () => 60_000,
    () => {},
  );
  await waitFor(() => displayed() === 0);
  assert.equal(box.querySelector(".play").getAttribute("aria-label"), "Pause the replay");
  await click(".play");
  assert.equal(await ended, false);
  assert.equal(text(".viewing"), "Viewing step 0");
});

test("a typed input ends the recording of a checkpoint", async () => {
  followSelection();
  state.status = "checkpoint";
  const ended = startPlayback(() => 60_000);
  await waitFor(() => displayed() === 0);
  store.input.value = "4 1";
  assert.equal(await ended, false);
  assert.equal(state.viewedStep, null);
  store.input.value = null;
});

test("others than the owner cannot branch", async () => {
  state.lastResponse = { ...state.lastResponse, is_owner: false };
  await key(slider(), "ArrowLeft");
  assert.equal(box.querySelector(".branch").hidden, true);
});

test("a step is requested once, however often it is shown before the answer", async () => {
  const steps = [];
  responses["runs/snapshot"] = async ({ step }) => {
    steps.push(step);
    await settle();
    return { snapshot: { step, samples: [] } };
  };
  await startPlayback(() => 0);
  assert.deepEqual(steps.sort(), [0, 10, 20]);
});

test("large steps are stored for a few frames only", async () => {
  const steps = Array.from({ length: 12 }, (_, i) => i),
    attention = { cross: [[Array(1_000_000).fill(1)]] },
    requested = [];
  store.weightSteps.value = steps;
  responses["runs/snapshot"] = ({ step }) => {
    requested.push(step);
    return { snapshot: { step, samples: [], attention: step ? attention : {} } };
  };
  for (const step of steps) await showStep(step);
  requested.length = 0;
  await showStep(11);
  await showStep(1);
  assert.deepEqual(requested, [1]);
});
