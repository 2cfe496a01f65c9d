// The rules of the page's scripts and their tests: `npm run lint`.
import js from "@eslint/js";
import globals from "globals";

const SIZE_LIMITS = {
  "max-lines": ["error", { max: 450 }],
  "max-lines-per-function": ["warn", { max: 60, skipBlankLines: true, skipComments: true }],
};

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
    },
  },
  {
    files: ["tests/js/**/*.js", "scripts/*.mjs", "*.js"],
    languageOptions: { globals: { ...globals.node, ...globals.browser } },
  },
];
