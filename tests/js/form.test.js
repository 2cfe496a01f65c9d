import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { settle } from "./support/dom.js";
import { box, fill, mount, submit, texts } from "./support/page.js";
import {
  Form,
  NumberField,
  validateField,
} from "../../playground/ui/static/shared/components/form.js";
import { html, useState } from "../../playground/ui/static/vendor/preact.js";

const FIELDS = [
  { name: "repo", label: "Name", isRequired: true, maxLength: 190, suggestions: ["you/model"] },
  { name: "count", label: "Examples", type: "number", min: 1, max: 500, isInteger: true },
  {
    name: "kind",
    label: "Kind",
    type: "select",
    options: [
      { value: "a", label: "A" },
      { value: "b", label: "B" },
    ],
  },
  { name: "notes", label: "Notes", type: "textarea", hint: "Markdown" },
  { name: "private", label: "Private", type: "checkbox" },
];
let onSubmit;

/** A form that keeps its values, as a tab does. */
function Harness({ errors, initial = {}, ...rest }) {
  const [values, setValues] = useState({ repo: "", count: "3", kind: "a", notes: "", ...initial });
  return html`<${Form}
    fields=${FIELDS}
    values=${values}
    errors=${errors}
    onInput=${(name, value) => setValues({ ...values, [name]: value })}
    onSubmit=${onSubmit}
    submitLabel="Publish"
    ...${rest}
  />`;
}
beforeEach(() => {
  onSubmit = mock.fn();
});
const control = (name) => box.querySelector(`[name=${name}]`);
const errors = () => texts(".pg-error");

test("the error of a number has the accepted range", () => {
  const field = {
    name: "n",
    label: "Examples",
    type: "number",
    min: 1,
    max: 5000,
    isInteger: true,
  };
  const range = "enter a whole number from 1 to 5,000.";
  assert.equal(validateField(field, "9000"), "Examples is 9000; " + range);
  assert.equal(validateField(field, "1.5"), "Examples is 1.5; " + range);
  assert.equal(validateField(field, "x"), "Examples is x; " + range);
  assert.equal(validateField(field, "7"), "");
  assert.equal(validateField(field, ""), "");
  const open = { name: "lr", label: "Rate", type: "number" };
  assert.equal(
    validateField({ ...open, min: 0.001 }, "0"),
    "Rate is 0; enter a number of at least 0.001.",
  );
  assert.equal(validateField({ ...open, max: 1 }, "2"), "Rate is 2; enter a number of at most 1.");
  assert.equal(validateField(open, "x"), "Rate is x; enter a number.");
  assert.equal(validateField({ ...open, isRequired: true }, ""), "Rate is empty; enter a value.");
  assert.equal(validateField({ ...open, type: "text", validate: (v) => v + "!" }, "a"), "a!");
});

test("invalid values are not submitted, and the first has the focus", async () => {
  await mount(html`<${Harness} initial=${{ count: "900" }} />`);
  assert.deepEqual(errors(), [], "nothing is wrong before the user did something");
  await submit();
  assert.equal(onSubmit.mock.callCount(), 0);
  assert.deepEqual(errors(), [
    "Name is empty; enter a value.",
    "Examples is 900; enter a whole number from 1 to 500.",
  ]);
  assert.equal(document.activeElement, control("repo"));
  assert.equal(control("repo").getAttribute("aria-invalid"), "true");
  const note = document.getElementById(control("repo").getAttribute("aria-describedby"));
  assert.equal(note.textContent, "Name is empty; enter a value.");
});

test("valid values are submitted", async () => {
  await mount(html`<${Harness} />`);
  for (const [name, value] of [
    ["repo", "ada/model"],
    ["count", "20"],
    ["kind", "b"],
    ["notes", "x"],
    ["private", true],
  ]) {
    await fill(control(name), value);
  }
  await submit();
  assert.deepEqual(onSubmit.mock.calls[0].arguments, [
    { repo: "ada/model", count: "20", kind: "b", notes: "x", private: true },
  ]);
});

test("a field shows its error after the user left it, and its hint otherwise", async () => {
  await mount(html`<${Harness} />`);
  assert.equal(box.querySelector(".pg-hint").textContent, "Markdown");
  control("repo").dispatchEvent(new Event("blur"));
  await settle();
  assert.deepEqual(errors(), ["Name is empty; enter a value."]);
});

test("errors of the server stand beside their field", async () => {
  await mount(html`<${Harness} errors=${{ repo: "this name is taken" }} />`);
  assert.deepEqual(errors(), ["this name is taken"]);
});

test("a disabled form has its reason", async () => {
  await mount(html`<${Harness} disabledReason="Enter a token first" />`);
  assert.equal(box.querySelector("[type=submit]").disabled, true);
  assert.match(box.textContent, /Enter a token first/);
  await mount(html`<${Harness} isBusy />`);
  assert.equal(box.querySelector("[type=submit]").disabled, true);
});

test("a number field reports valid numbers only", async () => {
  const onChange = mock.fn();
  await mount(
    html`<${NumberField}
      label="Minutes"
      value=${10}
      min=${1}
      max=${120}
      isInteger
      onChange=${onChange}
    />`,
  );
  const input = box.querySelector("input");
  await fill(input, "500");
  assert.deepEqual(errors(), ["Minutes is 500; enter a whole number from 1 to 120."]);
  await fill(input, "15");
  assert.deepEqual(errors(), []);
  input.dispatchEvent(new Event("blur"));
  assert.deepEqual(onChange.mock.calls.at(-1).arguments, [15]);
  assert.ok(onChange.mock.calls.every((call) => call.arguments[0] !== 500));
});
