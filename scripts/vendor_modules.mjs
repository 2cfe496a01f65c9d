// Build the page's third-party modules from the npm packages that package-lock.json pins:
// `npm run vendor`. With --check, nothing is written, and a difference is an error.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = new URL("../", import.meta.url);
const vendor = new URL("playground/ui/static/vendor/", root);
const PREACT_ENTRY = `
export { Fragment, createContext, h, render } from "preact";
export { useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export {
  batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect
} from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
`;
const PACKAGES = {
  "preact.js": ["preact", "htm", "@preact/signals", "@preact/signals-core"],
  "uplot.js": ["uplot"],
  "uplot.css": ["uplot"],
  "qr.js": ["qr"],
};

const readPackageFile = (name, file) =>
  readFileSync(new URL(`node_modules/${name}/${file}`, root), "utf8");

async function bundle(contents) {
  const result = await build({
    stdin: { contents, resolveDir: fileURLToPath(root) },
    bundle: true,
    format: "esm",
    legalComments: "none",
    minify: true,
    target: "es2022",
    write: false,
  });
  return result.outputFiles[0].text;
}

function describePackage(name) {
  const { version, license, repository } = JSON.parse(readPackageFile(name, "package.json"));
  const repo = (repository.url ?? repository).replace(/^.*github(?:\.com\/|:)|\.git$/g, "");
  return `| ${name} | ${version} | ${license} | [${repo}](https://github.com/${repo}) |`;
}

function buildReadme(files) {
  const names = [...new Set(Object.values(PACKAGES).flat())];
  const hash = (text) => createHash("sha256").update(text).digest("hex");
  return `# Third-party modules of the page

\`npm ci && npm run vendor\` builds these files with esbuild from the npm packages that
\`package-lock.json\` pins. Contributors to other parts of the project need no build step.
\`LICENSES.txt\` contains the license of each package.

| package | version | license | source |
| --- | --- | --- | --- |
${names.map(describePackage).join("\n")}

| file | packages | sha256 |
| --- | --- | --- |
${Object.entries(files)
  .map(([file, text]) => `| ${file} | ${PACKAGES[file].join(", ")} | \`${hash(text)}\` |`)
  .join("\n")}
`;
}

const files = {
  "preact.js": await bundle(PREACT_ENTRY),
  "uplot.js": await bundle('export { default } from "uplot";'),
  "uplot.css": readPackageFile("uplot", "dist/uPlot.min.css"),
  "qr.js": await bundle('export { encodeQR } from "qr";'),
};
const licenses = [...new Set(Object.values(PACKAGES).flat())].map(
  (name) => `${name}\n${"-".repeat(name.length)}\n\n${readPackageFile(name, "LICENSE").trim()}\n`,
);
const outputs = {
  ...files,
  "LICENSES.txt": licenses.join("\n"),
  "README.md": buildReadme(files),
};
const isCheck = process.argv.includes("--check");
for (const [name, text] of Object.entries(outputs)) {
  const path = new URL(name, vendor);
  if (existsSync(path) && readFileSync(path, "utf8") === text) continue;
  if (isCheck) {
    console.error(`${fileURLToPath(path)} differs from its package; run \`npm run vendor\``);
    process.exitCode = 1;
  } else writeFileSync(path, text);
}
