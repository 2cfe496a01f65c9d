import assert from "node:assert/strict";
import { test } from "node:test";

import { box, click, mount, sent, serve, text, texts, waitFor } from "./support/page.js";
import { DamagedRecords } from "../../playground/ui/static/train/damaged_records.js";
import { SavedCheckpoints } from "../../playground/ui/static/train/saved_checkpoints.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { state } from "../../playground/ui/static/train/state.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const RECORD = { name: "copy-1", reason: "it is nested too deeply", bytes: 2000 };

test("a damaged record is listed with its reason, and a second press deletes it", async () => {
  let damaged = [
    { kind: "run", ...RECORD },
    { kind: "experiment", ...RECORD, name: "x.json" },
  ];
  serve({
    "damaged/list": () => ({ damaged }),
    "damaged/remove": () => {
      damaged = damaged.slice(1);
      return {};
    },
  });
  store.owner.value = "ada";
  await mount(html`<${DamagedRecords} />`);
  await waitFor(() => texts(".damaged").length === 2);
  assert.match(
    text(".damaged"),
    /^run copy-1 is damaged \(2 KB\) ?Delete ?It is nested too deeply\.$/,
  );
  await click(".damaged button");
  assert.equal(sent.filter(([route]) => route === "damaged/remove").length, 0);
  await click(".damaged .danger");
  await waitFor(() => texts(".damaged").length === 1);
  const [, payload] = sent.find(([route]) => route === "damaged/remove");
  assert.deepEqual(payload, { owner: "ada", kind: "run", name: "copy-1" });
});

test("a damaged checkpoint of a run is listed and can be deleted", async () => {
  Object.assign(state, { modelRef: "run:1", lastResponse: { is_owner: true } });
  serve({
    "runs/details": { checkpoints: [], damaged: [{ kind: "checkpoint", ...RECORD }] },
    "runs/action": {},
  });
  await mount(html`<${SavedCheckpoints} />`);
  const details = box.querySelector(".saved");
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  await waitFor(() => text(".damaged"));
  await click(".damaged button");
  await click(".damaged .danger");
  const [, payload] = sent.find(([route]) => route === "runs/action");
  assert.equal(payload.checkpoint, "copy-1");
});
