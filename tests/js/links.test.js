import assert from "node:assert/strict";
import { test } from "node:test";

import "./support/dom.js";
import {
  buildLink,
  readViewState,
  sanitizeLinkState,
  takeQueryParam,
  writeViewState,
} from "../../playground/ui/static/shared/links.js";

const NOTHING = { tab: null, model: null, step: null, input: null };
const PAGE = "https://example.org/space/?__theme=dark";

test("a state survives the way through an address", () => {
  const state = { tab: "inspect", model: "watch:a-b_C", step: 0, input: "3 1 4 & 1" };
  const address = writeViewState(PAGE, state);
  assert.deepEqual(readViewState(new URL(address).search), state);
  assert.equal(new URL(address).searchParams.get("__theme"), "dark");
});

test("the parameters of a tab stay until the tab takes them", () => {
  const lesson = PAGE + "&learn=attention&text=2+7";
  assert.equal(writeViewState(lesson, NOTHING), lesson);
  assert.equal(readViewState(new URL(lesson).search).input, null);
  assert.equal(writeViewState(PAGE + "&watch=abc&text=1", NOTHING), PAGE);
});

test("an empty state leaves an empty address", () => {
  const address = writeViewState(PAGE, { tab: "hub", model: "run:1", step: 4, input: "1" });
  assert.equal(writeViewState(address, NOTHING), PAGE);
  assert.deepEqual(readViewState(""), NOTHING);
});

test("a link to the Train tab or to another tab names a model", () => {
  const search = (name, content) => new URL(buildLink(name, content)).search;
  assert.deepEqual(readViewState("?watch=abc&step=30&text=1+2"), {
    ...NOTHING,
    model: "watch:abc",
    step: 30,
    input: "1 2",
  });
  assert.equal(readViewState("?model=reverse").model, "checkpoint:reverse");
  const inspected = search("inspect", { subject: "watch:abc", step: 7, text: "2 2", view: "lens" });
  assert.deepEqual(readViewState(inspected), {
    tab: "inspect",
    model: "watch:abc",
    step: 7,
    input: "2 2",
  });
  assert.equal(
    readViewState(search("compare", { subject: "checkpoint:copy" })).model,
    "checkpoint:copy",
  );
  assert.equal(readViewState("?hub=ada/reverse@main").tab, "hub");
  assert.equal(readViewState("?learn=warmup").tab, "learn");
  assert.equal(readViewState("?bug=3").tab, "learn");
});

test("invalid values are ignored", () => {
  const search = "?tab=%3Cb%3E&model=run:%3Cscript%3E&step=-1&inspect=[[[";
  assert.deepEqual(readViewState(search), { ...NOTHING, tab: "inspect" });
  assert.equal(readViewState("?step=1e9").step, null);
  assert.equal(readViewState(`?input=${"1".repeat(1000)}`).input.length, 400);
  assert.equal(readViewState('?inspect={"subject":5,"step":"x","text":[]}').model, null);
});

test("the state of a link is limited in depth and size", () => {
  const deep = { a: { b: { c: { d: { e: 1 } } } }, list: Array(50).fill("x"), f: () => 1 };
  const limited = sanitizeLinkState(deep);
  assert.deepEqual(limited.a, { b: { c: { d: null } } });
  assert.equal(limited.list.length, 20);
  assert.equal(limited.f, null);
  assert.equal(sanitizeLinkState("x".repeat(5000)).length, 4000);
});

test("a link has the path of the page", () => {
  const page = { origin: "https://example.org", pathname: "/space/" };
  assert.equal(buildLink("hub", "a/b", page), "https://example.org/space/?hub=a%2Fb");
});

test("a parameter is read once", () => {
  history.replaceState(null, "", "/space/?hub=a/b&__theme=dark");
  assert.equal(takeQueryParam("hub"), "a/b");
  assert.equal(takeQueryParam("hub"), null);
  assert.equal(location.search, "?__theme=dark");
});
