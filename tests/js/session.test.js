import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import "./support/dom.js";
import { openSession, SessionNote } from "../../playground/ui/static/shared/session.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html, render } from "../../playground/ui/static/vendor/preact.js";

const KEY = "transformer-playground";
let sent, answers;

globalThis.fetch = async (url, { body }) => {
  const route = url.pathname.split("/api/")[1];
  sent.push([route, JSON.parse(body)]);
  const answer = answers[route];
  const json = async () => (Array.isArray(answer) ? answer.shift() : answer);
  return { ok: true, status: 200, headers: new Headers(), json };
};

/** Whether the page warns that nothing is stored. */
function isWarned() {
  const root = document.createElement("div");
  render(html`<${SessionNote} />`, root);
  return !root.querySelector(".visit-note").hidden;
}

beforeEach(() => {
  localStorage.clear();
  sent = [];
  answers = { "session/open": { owner: "of-server" }, "session/store": {} };
});

test("a browser sends what it stores, and stores the key", async () => {
  localStorage.setItem(KEY, "x".repeat(5000)); // the browser may store any text
  await openSession();
  assert.deepEqual(sent, [["session/open", { stored: "x".repeat(999) }]]);
  assert.equal(store.owner.value, "of-server");
  assert.equal(localStorage.getItem(KEY), '{"owner":"of-server"}');
  assert.equal(isWarned(), false);
});

test("without storage the server sets a cookie, and the page warns if that fails", async () => {
  const storage = globalThis.localStorage;
  globalThis.localStorage = {
    getItem: () => null,
    setItem() {
      throw new Error("denied");
    },
  };
  for (const isStored of [true, false]) {
    answers["session/open"] = [{ owner: "of-server" }, { owner: isStored ? "of-server" : "new" }];
    sent = [];
    await openSession();
    for (let turn = 0; turn < 10; turn++) await new Promise((done) => setImmediate(done));
    assert.deepEqual(
      sent.map(([route]) => route),
      ["session/open", "session/store", "session/open"],
    );
    assert.equal(isWarned(), !isStored);
  }
  globalThis.localStorage = storage;
});
