import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { makeBox, settle } from "./support/dom.js";

const ROOT = new URL("../../", import.meta.url);
const EDIT =
  /^(The file|In) `playground\/ui\/static\/([^`]+)`(?:, below `([^\n]+)`)?:\n\n```js\n(.*?)```/gms;
let copy;

/** Copy the modules of the page, and apply the edits of the guide to the copy. */
before(async () => {
  copy = await mkdtemp(join(tmpdir(), "guide-"));
  await writeFile(join(copy, "package.json"), '{"type": "module"}');
  await cp(new URL("playground/ui/static/", ROOT), join(copy, "static"), { recursive: true });
  const guide = await readFile(new URL("docs/frontend.md", ROOT), "utf8"),
    edits = [...guide.matchAll(EDIT)];
  assert.equal(new Set(edits.map(([, , name]) => name)).size, 3);
  for (const [, how, name, anchor, text] of edits) {
    const path = join(copy, "static", name);
    if (how === "The file") {
      await writeFile(path, text, { flag: "wx" });
      continue;
    }
    const parts = (await readFile(path, "utf8")).split(anchor + "\n");
    assert.equal(parts.length, 2, anchor);
    await writeFile(path, parts.join(`${anchor}\n${text}`));
  }
});
after(() => rm(copy, { recursive: true }));

test("the view of the guide follows the poll", async () => {
  const load = (name) => import(pathToFileURL(join(copy, "static", name)).href),
    { html, render } = await load("vendor/preact.js"),
    { state } = await load("train/state.js"),
    { Train } = await load("train/train.js"),
    box = makeBox();
  globalThis.fetch = async () => Response.json({});
  const left = () => box.querySelector(".steps-left").textContent.trim();
  state.lastResponse = { step: 20, max_steps: 200 };
  render(html`<${Train} />`, box);
  assert.equal(left(), "180 steps left");
  state.lastResponse = { step: 199, max_steps: 200 };
  await settle();
  assert.equal(left(), "1 step left");
  render(null, box);
});

test("each name of the path from poll to pixel is in its file", async () => {
  const guide = await readFile(new URL("docs/frontend.md", ROOT), "utf8"),
    rows = [...guide.matchAll(/^\| `([^`]+\.js)` \| `(\w+)` \|/gm)];
  assert.equal(rows.length, 9);
  for (const [, file, name] of rows) {
    const code = await readFile(new URL("playground/ui/static/" + file, ROOT), "utf8");
    assert.match(code, new RegExp(`(function|const|async) ${name}\\b`), `${file}: ${name}`);
  }
});
