// Activations.
import { formatMessage, formatNumber } from "../shared/format.js";
import { createSegmentedControl, el, setPressed } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import { loadProvenance, renderProvenance } from "./provenance.js";
import { scheduleRefresh } from "./requests.js";
import { state } from "./state.js";
import { queryView } from "./views.js";

export const activationsState = { stage: "", head: 0, cell: null, drawn: null, origin: null };
export const stageKey = (stage) => stage.block + "/" + stage.name;
// Thin out the labels of vector components to fit the width. The caption names every component.
export const thinLabels = (names, canvas) => {
  const availableWidth = (canvas.clientWidth - 90) / names.length,
    every = [1, 2, 4, 8].find((n) => n * availableWidth >= 20) || 16;
  return names.map((name, i) => (i % every ? "" : String(name)));
};
export const signedCaption = (maxValue) =>
  "Blue is positive, orange negative; full colour is ±" + formatNumber(maxValue) + ".";

export const activationsSpec = {
  title: "Activations",
  explain:
    "All intermediate tensors in order of computation, teacher-forced. Use the left and " +
    "right arrow keys to change the stage; click a value to see how it is computed.",
  build(box) {
    const map = el("canvas", { className: "walk-map picture" });
    box.append(
      el("ol", { className: "walk-steps", ariaLabel: "Chapters" }),
      el("p", { className: "walk-description" }),
      el(
        "div",
        { className: "walk-two" },
        el("nav", { className: "walk-list", ariaLabel: "Stages" }),
        el(
          "section",
          { className: "walk-stage" },
          el(
            "div",
            { className: "row walk-bar" },
            el("button", {
              type: "button",
              className: "quiet walk-back",
              textContent: "← Previous",
              title: "Left arrow",
            }),
            el("button", {
              type: "button",
              className: "quiet walk-on",
              textContent: "Next →",
              title: "Right arrow",
            }),
            el("output", { className: "hint walk-place" }),
          ),
          el("h4", { className: "walk-name", ariaLive: "polite" }),
          el("p", { className: "walk-formula" }),
          el("p", { className: "walk-shape hint" }),
          el("p", { className: "walk-code" }),
          el("div", { className: "row walk-heads" }),
          map,
          el("p", { className: "caption walk-words" }),
          el("p", { className: "walk-likeliest", hidden: true }),
          el(
            "section",
            { className: "walk-origin", hidden: true, ariaLabel: "Computation of a value" },
            el("h4"),
            el("p", { className: "walk-equation" }),
            el("table", { className: "walk-parts picture" }),
            el("canvas", { className: "walk-terms picture" }),
            el("p", { className: "caption walk-terms-words" }),
          ),
        ),
      ),
    );
    box.querySelector(".walk-back").addEventListener("click", () => stepStage(-1));
    box.querySelector(".walk-on").addEventListener("click", () => stepStage(1));
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.defaultPrevented || event.target.closest("canvas, input, select, textarea"))
        return;
      event.preventDefault();
      stepStage(by);
    });
  },
  options: () => ({ stage: activationsState.stage, head: activationsState.head }),
  restoreOptions(options) {
    if (typeof options.stage === "string") activationsState.stage = options.stage;
    if (Number.isInteger(options.head)) activationsState.head = options.head;
  },
  reset() {
    activationsState.cell = activationsState.origin = null;
  },
  draw(data) {
    const at = data.chosen.stage,
      stage = data.stages[at],
      chosen = data.chosen,
      anew = activationsState.drawn !== data;
    activationsState.drawn = data;
    activationsState.stage = stageKey(stage);
    activationsState.head = chosen.head;
    renderStepList(data);
    renderStageList(data);
    queryView("walk", ".walk-back").disabled = at === 0;
    queryView("walk", ".walk-on").disabled = at === data.stages.length - 1;
    queryView("walk", ".walk-place").textContent =
      "stage " + (at + 1) + " of " + data.stages.length;
    queryView("walk", ".walk-name").textContent =
      formatMessage(stage.block).slice(0, -1) + ": " + stage.name;
    queryView("walk", ".walk-formula").textContent = stage.formula;
    queryView("walk", ".walk-shape").textContent =
      stage.words +
      (stage.low === null
        ? ""
        : "; from " + formatNumber(stage.low) + " to " + formatNumber(stage.high)) +
      (chosen.cut ? "; displayed: " + chosen.cut : "");
    queryView("walk", ".walk-shape").title = stage.shape;
    queryView("walk", ".walk-code").replaceChildren(
      el("span", { className: "hint", textContent: stage.file + ":" + stage.line }),
      el("code", { textContent: stage.text }),
    );
    renderHeadChoice(chosen);
    renderTensor(stage, chosen);
    const likeliest = queryView("walk", ".walk-likeliest");
    likeliest.hidden = !chosen.likeliest;
    if (chosen.likeliest)
      likeliest.replaceChildren(
        "Largest in each row: ",
        el("b", { textContent: chosen.likeliest.join(" ") }),
      );
    // The selected value stays selected when the sequence or the head changes, if the cell still
    // exists.
    if (anew && activationsState.cell) {
      const [r, k] = activationsState.cell;
      if (r < chosen.rows.length && k < chosen.columns.length) loadProvenance(r, k);
      else {
        activationsState.cell = activationsState.origin = null;
      }
    }
    renderProvenance(stage, chosen);
  },
  rows: (data) =>
    data.chosen.weights.flatMap((row, r) =>
      row.map((value, k) => ({
        block: data.stages[data.chosen.stage].block,
        stage: data.stages[data.chosen.stage].name,
        ...(data.chosen.heads ? { head: data.chosen.head + 1 } : {}),
        row: r + 1,
        of: data.chosen.rows[r],
        column: k + 1,
        at: data.chosen.columns[k],
        value,
      })),
    ),
};

function selectStage(key, head = activationsState.head) {
  if (key !== activationsState.stage) activationsState.cell = activationsState.origin = null;
  activationsState.stage = key;
  activationsState.head = head;
  scheduleRefresh("walk", 0);
}
function stepStage(by) {
  const data = state.resultByView.walk;
  if (!data) return;
  // Count from the requested stage, not from the rendered one, so that a held key works while
  // requests are pending.
  const now = data.stages.findIndex((stage) => stageKey(stage) === activationsState.stage),
    next = data.stages[now + by];
  if (next) selectStage(stageKey(next));
}

function renderStepList(data) {
  const list = queryView("walk", ".walk-steps"),
    now = data.stages[data.chosen.stage].step;
  if (!list.children.length)
    list.append(
      ...data.steps.map((_, i) => {
        const button = el("button", { type: "button" });
        button.addEventListener("click", () => {
          const { steps, stages } = state.resultByView.walk;
          selectStage(stageKey(stages[steps[i].stage]), steps[i].head);
        });
        return el("li", {}, button);
      }),
    );
  [...list.children].forEach((item, i) => {
    item.firstChild.replaceChildren(el("span", { textContent: i + 1 }), data.steps[i].title);
    item.firstChild.title = data.steps[i].description;
    item.firstChild.setAttribute("aria-current", i === now ? "step" : "false");
  });
  queryView("walk", ".walk-description").textContent = data.steps[now].description;
}

function renderStageList(data) {
  const list = queryView("walk", ".walk-list"),
    signature = data.stages.map(stageKey).join();
  if (list.dataset.signature !== signature) {
    list.dataset.signature = signature;
    const blocks = new Map();
    for (const stage of data.stages) {
      if (!blocks.has(stage.block))
        blocks.set(
          stage.block,
          el(
            "details",
            {},
            el("summary", {}, el("span", { textContent: stage.step + 1 }), stage.block),
          ),
        );
      const button = el(
        "button",
        { type: "button", title: stage.formula },
        stage.name,
        el("span", { className: "hint" }),
      );
      button.dataset.key = stageKey(stage);
      button.addEventListener("click", () => selectStage(button.dataset.key));
      blocks.get(stage.block).append(button);
    }
    list.replaceChildren(...blocks.values());
  }
  const buttons = [...list.querySelectorAll("button")],
    focused = document.activeElement;
  buttons.forEach((button, i) => {
    button.lastChild.textContent = data.stages[i].shape.split(" = ")[1];
    button.setAttribute("aria-current", String(i === data.chosen.stage));
  });
  const current = buttons[data.chosen.stage],
    block = current.parentElement;
  if (list.dataset.at !== current.dataset.key) {
    list.dataset.at = current.dataset.key;
    for (const other of list.children) other.open = other === block;
    if (list.contains(focused) && focused !== current) current.focus({ preventScroll: true });
    // Only the list scrolls, not the page; it shows as much of the block as fits.
    const top = block.offsetTop,
      bottom = top + block.offsetHeight;
    if (top < list.scrollTop || bottom > list.scrollTop + list.clientHeight)
      list.scrollTop = Math.min(top, Math.max(0, bottom - list.clientHeight));
  }
}

function renderHeadChoice(chosen) {
  const box = queryView("walk", ".walk-heads"),
    buttons = () => box.querySelector(".choice");
  box.hidden = chosen.heads < 2;
  if (box.hidden) return;
  if (box.dataset.heads !== String(chosen.heads)) {
    box.dataset.heads = chosen.heads;
    box.replaceChildren(
      el(
        "label",
        {},
        "head ",
        createSegmentedControl(
          Array.from({ length: chosen.heads }, (_, h) => [h, String(h + 1)]),
          chosen.head,
          (h) => {
            activationsState.head = h;
            scheduleRefresh("walk", 0);
          },
          "Head",
        ),
      ),
    );
  }
  setPressed(buttons(), chosen.head);
}

export function renderTensor(stage, chosen) {
  const caption = queryView("walk", ".walk-words"),
    head = chosen.heads ? "head " + (chosen.head + 1) + ", " : "";
  caption.dataset.resting =
    "Rows: " +
    chosen.axes[0] +
    ". Columns: " +
    chosen.axes[1] +
    ". " +
    (chosen.signed
      ? signedCaption(chosen.max)
      : "Full colour is " + formatNumber(chosen.max) + ".") +
    " Click a value, or press Enter on it, to see how it is computed.";
  mountMatrix(
    queryView("walk", ".walk-map"),
    {
      weights: chosen.weights,
      rows: chosen.rows,
      columns: chosen.axes[1].startsWith("dimensions")
        ? thinLabels(chosen.columns, queryView("walk", ".walk-map"))
        : chosen.columns,
      possible: chosen.possible,
      signed: chosen.signed,
      max: chosen.max,
      chosen: activationsState.cell,
    },
    {
      caption,
      hover: (r, k) =>
        formatMessage(stage.name).slice(0, -1) +
        ", " +
        head +
        chosen.rows[r] +
        " (row " +
        (r + 1) +
        "), " +
        (chosen.axes[1].startsWith("dimensions")
          ? "dimension " + chosen.columns[k]
          : chosen.columns[k] + " (column " + (k + 1) + ")") +
        ": " +
        (chosen.weights[r][k] === null ? "-infinity" : chosen.weights[r][k]) +
        ".",
      choose: (r, k) => loadProvenance(r, k),
    },
  );
}
