// An ESLint rule: a module that imports itself through other modules is an error.
import { readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";

const IMPORT = /^(?:import|export)\s(?:[^;"]*\sfrom\s)?"(\.[^"]+)";/gm;
/** @type {Map<string, string[]>} */
const imports = new Map(); // by path

/** @param {string} file @returns {string[]} */
function importsOf(file) {
  if (!imports.has(file)) {
    const matches = [...readFileSync(file, "utf8").matchAll(IMPORT)];
    imports.set(
      file,
      matches.map(([, path]) => resolve(dirname(file), path)),
    );
  }
  return imports.get(file) ?? [];
}

/** Return the modules from `from` to `to`; null if none leads there. */
function findWay(from, to, seen = new Set()) {
  if (from === to) return [to];
  seen.add(from);
  for (const next of importsOf(from)) {
    const way = !seen.has(next) && findWay(next, to, seen);
    if (way) return [from, ...way];
  }
  return null;
}

export default {
  meta: { type: "problem", messages: { circle: "These imports are a circle: {{ way }}." } },
  create: ({ filename, report }) => ({
    "[source.value=/^[.]/]:matches(ImportDeclaration, ExportNamedDeclaration)"(node) {
      const way = findWay(resolve(dirname(filename), node.source.value), filename),
        names = [filename, ...(way ?? [])].map((file) => relative(dirname(filename), file));
      if (way) report({ node, messageId: "circle", data: { way: names.join(" → ") } });
    },
  }),
};
