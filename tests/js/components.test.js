import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { enter, press, settle } from "./support/dom.js";
import { box, click, key, mount, text, waitFor } from "./support/page.js";
import { BarList } from "../../playground/ui/static/shared/components/bar_list.js";
import {
  ConfirmButton,
  CopyField,
  FileButton,
} from "../../playground/ui/static/shared/components/buttons.js";
import { Dialog } from "../../playground/ui/static/shared/components/dialog.js";
import { HeatMapView } from "../../playground/ui/static/shared/components/heat_map_view.js";
import { JobProgress } from "../../playground/ui/static/shared/components/job_progress.js";
import { Menu } from "../../playground/ui/static/shared/components/menu.js";
import { SegmentedControl } from "../../playground/ui/static/shared/components/segments.js";
import { Select } from "../../playground/ui/static/shared/components/select.js";
import { StatusMessage } from "../../playground/ui/static/shared/components/status_message.js";
import { TokenStrip } from "../../playground/ui/static/shared/components/token_strip.js";
import { IDLE, Job } from "../../playground/ui/static/shared/job.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

test("a message is read when it changes, and an error offers to try again", async () => {
  const onRetry = mock.fn();
  await mount(html`<${StatusMessage} text="" />`);
  assert.equal(text("[role=status]"), "");
  await mount(html`<${StatusMessage} text="Saved." kind="success" />`);
  assert.equal(text("[role=status]"), "✓ Saved.");
  await mount(html`<${StatusMessage} text="Offline." kind="error" onRetry=${onRetry} />`);
  assert.equal(text("[role=alert]"), "Offline. Retry");
  await click("button");
  assert.equal(onRetry.mock.callCount(), 1);
});

test("a job has its progress and Cancel, and afterwards its message", async () => {
  const job = new Job({});
  const cancel = mock.method(job, "cancel", async () => {});
  const retry = mock.method(job, "retry", async () => {});
  await mount(html`<${JobProgress} job=${job} doneText="Done." />`);
  assert.equal(text("p"), "");
  job.state.value = {
    ...IDLE,
    status: "working",
    message: "Reading",
    done: 1500,
    total: 3000,
    unit: "steps",
  };
  await settle();
  assert.equal(text("[role=status]"), "Reading");
  assert.equal(text(".pg-job-amount"), "1,500 of 3,000 steps");
  assert.equal(box.querySelector("progress").getAttribute("value"), "1500");
  await click("button");
  assert.equal(cancel.mock.callCount(), 1);
  job.state.value = { ...job.state.value, unit: "bytes", total: 2e6, done: 1e6 };
  await settle();
  assert.equal(text(".pg-job-amount"), "1.0 MB of 2.0 MB");
  job.state.value = { ...IDLE, status: "waiting", message: "Queued: 1 ahead" };
  await settle();
  assert.equal(box.querySelector("progress").hasAttribute("value"), false);
  job.state.value = { ...IDLE, status: "failed", message: "Offline.", canRetry: true };
  await settle();
  assert.equal(text("[role=alert]"), "Offline. Retry");
  await click("button");
  assert.equal(retry.mock.callCount(), 1);
  job.state.value = { ...IDLE, status: "done" };
  await settle();
  assert.equal(text(".success"), "✓ Done.");
});

test("one segment is pressed, and arrow keys choose the next one", async () => {
  const onChange = mock.fn();
  const options = [
    { value: "map", label: "Map" },
    { value: "one", label: "One token" },
  ];
  await mount(
    html`<${SegmentedControl} label="View" options=${options} value="map" onChange=${onChange} />`,
  );
  assert.equal(text("[aria-pressed=true]"), "Map");
  press(box.querySelector("[aria-pressed=true]"), "ArrowRight");
  press(box.querySelector("[aria-pressed=true]"), "ArrowLeft");
  press(box.querySelector("[aria-pressed=true]"), "a");
  await click("[data-value=one]");
  assert.deepEqual(
    onChange.mock.calls.map((call) => call.arguments[0]),
    ["one", "one", "one"],
  );
  assert.equal(document.activeElement.textContent.trim(), "One token");
});

test("the options of a select element are grouped", async () => {
  const onChange = mock.fn();
  const options = [
    { value: "run:1", label: "reverse", group: "Your runs" },
    { value: "checkpoint:copy", label: "copy", group: "Checkpoints" },
    { value: "", label: "none" },
  ];
  await mount(
    html`<${Select}
      label="Model"
      options=${options}
      value="checkpoint:copy"
      onChange=${onChange}
    />`,
  );
  assert.deepEqual(
    [...box.querySelectorAll("optgroup")].map((each) => each.label),
    ["Your runs", "Checkpoints"],
  );
  const select = box.querySelector("select");
  assert.equal(select.value, "checkpoint:copy");
  assert.match(text("label"), /^Model /);
  enter(select, "run:1");
  assert.deepEqual(onChange.mock.calls[0].arguments, ["run:1"]);
});

test("a confirmation acts once, and Escape cancels it", async () => {
  const onConfirm = mock.fn();
  await mount(
    html`<${ConfirmButton} label="Delete" question="Delete the run?" onConfirm=${onConfirm} />`,
  );
  await click("button");
  assert.equal(document.activeElement.textContent.trim(), "Cancel");
  await key(document.activeElement, "Escape");
  assert.equal(text("button"), "Delete");
  assert.equal(document.activeElement, box.querySelector("button"));
  await click("button");
  await click(".danger");
  assert.equal(onConfirm.mock.callCount(), 1);
  assert.equal(box.querySelectorAll("button").length, 1);
  await click("button");
  const outside = document.body.appendChild(document.createElement("button"));
  const event = new Event("focusout", { bubbles: true });
  Object.defineProperty(event, "relatedTarget", { value: outside });
  box.querySelector(".danger").dispatchEvent(event);
  await settle();
  assert.equal(text("button"), "Delete");
});

test("a text is copied, and a prompt shows it if the browser denies that", async () => {
  const writeText = mock.fn(async () => {});
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
  window.prompt = mock.fn();
  await mount(html`<${CopyField} label="Link" value="https://example.org/" />`);
  await click("button");
  assert.deepEqual(writeText.mock.calls[0].arguments, ["https://example.org/"]);
  assert.equal(text("button"), "Copied");
  await waitFor(() => text("button") === "Copy");
  writeText.mock.mockImplementation(async () => {
    throw new Error("denied");
  });
  await click("button");
  assert.deepEqual(window.prompt.mock.calls[0].arguments, ["Copy: Link", "https://example.org/"]);
  assert.equal(text("button"), "Copy");
});

test("wrong, missing and extra tokens are marked with their reason", async () => {
  const view = (tokens) =>
    html`<${TokenStrip} label="Prediction" tokens=${tokens} targets=${["1", "2", "EOS"]} />`;
  await mount(view(["1", "3", "EOS", "4"]));
  const titles = [...box.querySelectorAll(".pg-token.wrong")].map((each) => each.title);
  assert.deepEqual(titles, ["position 2; should be 2", "position 4; extra token"]);
  assert.equal(box.querySelector("[role=img]").getAttribute("aria-label"), "wrong");
  await mount(view(["1", "2"]));
  assert.equal(box.querySelector(".wrong").title, "position 3; missing; should be EOS");
  await mount(view(["1", "2", "EOS"]));
  assert.equal(box.querySelector("[role=img]").getAttribute("aria-label"), "right");
  await mount(view(["1", "2\u200b", "EOS"]));
  assert.equal(text(".wrong"), "2U+200B");
});

test("bars have the width of their share", async () => {
  const items = [
    { label: "5", value: 0.8, isTarget: true },
    { label: "1", value: 3 },
  ];
  await mount(html`<${BarList} label="Next token" items=${items} max=${2} />`);
  const widths = [...box.querySelectorAll(".pg-bar span")].map((each) => each.style.width);
  assert.deepEqual(widths, ["40%", "100%"]);
  assert.equal(text(".target .pg-bar-value"), "80.0 %");
});

test("a heat map shows the text of the cell at the cursor in its caption", async () => {
  const data = { rows: ["a"], columns: ["x"], values: [[-2]], isSigned: true };
  await mount(html`<${HeatMapView} label="Effect" data=${data} caption="Rows: layers." />`);
  assert.equal(text("figcaption"), "Rows: layers.");
  assert.equal(text(".pg-scale"), "−22");
  await key("canvas", "ArrowDown");
  assert.equal(text("figcaption"), "a, x: -2.000");
  await mount(
    html`<${HeatMapView}
      label="Effect"
      data=${data}
      describe=${() => "cell"}
      onSelect=${() => {}}
    />`,
  );
  press(box.querySelector("canvas"), "ArrowDown");
  press(box.querySelector("canvas"), "ArrowUp");
});

test("the arrow keys move between the tabs of a view", async () => {
  const onChange = mock.fn();
  const options = [
    { value: "a", label: "First" },
    { value: "b", label: "Second" },
  ];
  await mount(
    html`<${SegmentedControl}
      label="Views"
      prefix="v"
      options=${options}
      value="a"
      onChange=${onChange}
    />`,
  );
  const [first, second] = box.querySelectorAll("[role=tab]");
  assert.deepEqual([first.id, first.tabIndex, second.tabIndex], ["v-a", 0, -1]);
  assert.equal(first.getAttribute("aria-selected"), "true");
  press(first, "ArrowLeft");
  assert.deepEqual(onChange.mock.calls[0].arguments, ["b"]);
  assert.equal(document.activeElement, second);
  press(first, "a");
  second.click();
  assert.equal(onChange.mock.callCount(), 2);
});

test("a menu closes after a choice, with Escape and with a click elsewhere", async () => {
  const onClick = mock.fn();
  await mount(html`<${Menu} label="Actions"><button onClick=${onClick}>Rename</button><//>`);
  const menu = box.querySelector("details"),
    open = async () => {
      menu.open = true;
      menu.dispatchEvent(new Event("toggle"));
      await settle();
    };
  assert.equal(box.querySelector("summary").getAttribute("aria-label"), "Actions");
  await open();
  assert.match(box.querySelector(".pg-menu-panel").style.top, /px$/);
  await click("button");
  assert.equal(onClick.mock.callCount(), 1);
  assert.equal(menu.open, false);
  await open();
  press(box.querySelector("button"), "Escape");
  assert.equal(menu.open, false);
  await open();
  document.body.click();
  assert.equal(menu.open, false);
});

test("only an open menu listens to the page", async () => {
  const kinds = new Set(),
    add = mock.method(document, "addEventListener", (kind) => kinds.add(kind)),
    remove = mock.method(document, "removeEventListener", (kind) => kinds.delete(kind));
  await mount(html`<${Menu} label="Actions"><button>Rename</button><//>`);
  const menu = box.querySelector("details");
  for (const expected of [[], ["click", "scroll"], []]) {
    menu.open = expected.length > 0;
    menu.dispatchEvent(new Event("toggle"));
    assert.deepEqual([...kinds], expected);
  }
  add.mock.restore();
  remove.mock.restore();
});

test("a menu with a form stays open while it is used", async () => {
  await mount(html`<${Menu} label="Settings" isForm><button>Save</button><//>`);
  const menu = box.querySelector("details");
  menu.open = true;
  await click("button");
  assert.equal(menu.open, true);
});

test("a dialog has its content while it is open", async () => {
  const onClose = mock.fn(),
    view = (isOpen) =>
      html`<${Dialog} title="Share" isOpen=${isOpen} onClose=${onClose}><p class="it">it</p><//>`;
  await mount(view(false));
  assert.equal(box.querySelector(".it"), null);
  await mount(view(true));
  assert.equal(box.querySelector("dialog").open, true);
  assert.equal(text(".it"), "it");
  await click(".close");
  assert.equal(box.querySelector("dialog").open, false);
  assert.equal(onClose.mock.callCount(), 1);
});

test("a long text to copy has several lines", async () => {
  await mount(html`<${CopyField} label="Program" class="program" rows=${8} value="import a" />`);
  assert.equal(box.querySelector("textarea.program").value, "import a");
});

test("a file button passes on the chosen file and accepts it a second time", async () => {
  const onFile = mock.fn(),
    file = new File(["a"], "a.csv");
  await mount(html`<${FileButton} label="Open" accept=".csv" onFile=${onFile} />`);
  const input = box.querySelector("input"),
    open = mock.method(input, "click", () => {});
  await click("button");
  assert.equal(open.mock.callCount(), 1);
  for (const files of [[file], [], [file]]) {
    Object.defineProperty(input, "files", { configurable: true, value: files });
    input.dispatchEvent(new Event("change"));
  }
  assert.deepEqual(
    onFile.mock.calls.map((call) => call.arguments[0]),
    [file, file],
  );
});
