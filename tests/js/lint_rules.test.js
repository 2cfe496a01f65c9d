import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Linter } from "eslint";

import config from "../../eslint.config.js";

const root = fileURLToPath(new URL("../../", import.meta.url)),
  linter = new Linter({ cwd: root });

/** The messages of the rules for imports about a module with this text. */
const lint = (module, text) =>
  linter
    .verify(text, config, { filename: `${root}playground/ui/static/${module}` })
    .filter(({ ruleId }) => /import/.test(ruleId))
    .map(({ message }) => message);

test("modules that import each other are a circle", () => {
  assert.deepEqual(lint("shared/api.js", 'import "./store.js";'), [
    "These imports are a circle: api.js → store.js → api.js.",
  ]);
  assert.deepEqual(lint("shared/api.js", 'import "./format.js";'), []);
});

test("the data of a tab imports no part of the page", () => {
  for (const module of [
    "../samples.js",
    "../../shared/components/menu.js",
    "../../shared/diagram/paint.js",
  ])
    assert.match(
      lint("train/data/overlays.js", `import "${module}";`)[0],
      /data .* below/i,
      module,
    );
  for (const module of ["../state.js", "../../shared/api.js", "./snapshots.js"])
    assert.deepEqual(lint("train/data/model_poll.js", `import "${module}";`), [], module);
});
