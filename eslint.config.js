// The rules of the page's scripts and their tests: `npm run lint`.
import js from "@eslint/js";
import globals from "globals";

import noImportCircle from "./scripts/no_import_circle.mjs";

const SIZE_LIMITS = {
  "max-lines": ["error", { max: 450 }],
  "max-lines-per-function": ["error", { max: 60, skipBlankLines: true, skipComments: true }],
};

/** Forbid the modules of a pattern to import paths that match. */
const limitImports = (files, regex, message) => ({
  files: ["playground/ui/static/" + files],
  rules: { "no-restricted-imports": ["error", { patterns: [{ regex, message }] }] },
});

export default [
  { ignores: ["node_modules/", "playground/ui/static/vendor/", "playground/ui/*.js"] },
  js.configs.recommended,
  {
    files: ["playground/ui/static/**/*.js", "playground/server/templates/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      ...SIZE_LIMITS,
      eqeqeq: "error",
      "no-unused-vars": [
        "error",
        { argsIgnorePattern: "^_", caughtErrors: "none", ignoreRestSiblings: true },
      ],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "page/no-import-circle": "error",
    },
    plugins: { page: { rules: { "no-import-circle": noImportCircle } } },
  },
  limitImports("train/state.js", "^\\./", "The state of a tab imports none of it."),
  limitImports(
    "train/data/*.js",
    "^\\.\\./(?!\\.\\./(shared|engine)/[^/]+$|\\.\\./(vendor/|shared/diagram/structure)|messages|state)",
    "The data of a tab is below its parts: it imports the state, shared modules and other data.",
  ),
  {
    files: ["tests/js/**/*.js", "scripts/*.mjs", "*.js"],
    languageOptions: { globals: { ...globals.node, ...globals.browser } },
  },
];
