import assert from "node:assert/strict";
import { test } from "node:test";

import "./support/dom.js";
import {
  parseLinkState,
  readViewState,
  sanitizeLinkState,
  writeParams,
} from "../../playground/ui/static/shared/links.js";

const NOTHING = { tab: null, model: null, step: null, input: null };
const PAGE = "https://example.org/space/?__theme=dark";

test("a state survives the way through an address", () => {
  const state = { tab: "inspect", model: "watch:a-b_C", step: 0, input: "3 1 4 & 1" };
  const address = writeParams(PAGE, state);
  assert.deepEqual(readViewState(new URL(address).search), state);
  assert.equal(new URL(address).searchParams.get("__theme"), "dark");
});

test("parameters of others stay", () => {
  const lesson = PAGE + "&learn=attention&text=2+7";
  assert.equal(writeParams(lesson, NOTHING), lesson);
  assert.equal(writeParams(PAGE + "&watch=abc", NOTHING), PAGE);
});

test("an empty state leaves an empty address", () => {
  const address = writeParams(PAGE, { tab: "hub", model: "run:1", step: 4, input: "1" });
  assert.equal(writeParams(address, NOTHING), PAGE);
  assert.deepEqual(readViewState(""), NOTHING);
});

test("a short link names a bundled model, a shared run or an exercise", () => {
  assert.deepEqual(readViewState("?watch=abc&step=30&input=1+2"), {
    ...NOTHING,
    model: "watch:abc",
    step: 30,
    input: "1 2",
  });
  assert.equal(readViewState("?model=reverse").model, "checkpoint:reverse");
  assert.equal(readViewState("?learn=warmup").tab, "learn");
  assert.equal(readViewState("?bug=3").tab, "learn");
  assert.equal(readViewState("?day=2026-11-29").tab, "learn"); // a shared result
});

test("invalid values are ignored", () => {
  assert.deepEqual(readViewState("?tab=%3Cb%3E&model=run:%3Cscript%3E&step=-1"), NOTHING);
  assert.equal(readViewState("?step=1e9").step, null);
  assert.equal(readViewState(`?input=${"1".repeat(1000)}`).input.length, 400);
  for (const text of [null, "", "[[["]) assert.deepEqual(parseLinkState(text), {});
});

test("the state of a link is limited in depth and size", () => {
  const deep = { a: { b: { c: { d: { e: 1 } } } }, list: Array(50).fill("x"), f: () => 1 };
  const limited = sanitizeLinkState(deep);
  assert.deepEqual(limited.a, { b: { c: { d: null } } });
  assert.equal(limited.list.length, 20);
  assert.equal(limited.f, null);
  assert.equal(sanitizeLinkState("x".repeat(5000)).length, 4000);
});
