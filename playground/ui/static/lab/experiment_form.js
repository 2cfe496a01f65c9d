import { request } from "../shared/api.js";
import { copyText } from "../shared/common.js";
import { formatCount } from "../shared/format.js";
import { buildLink } from "../shared/links.js";
import { createSegmentedControl, el, setPressed, setText } from "../shared/dom.js";
import { addPeriod } from "./elements.js";
import { openExperiment } from "./experiments.js";
import { formatEstimate } from "./presets.js";
import { linkState, loadLocal, requestExperiments, saveLocal } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";

let experimentForm,
  planRequestId = 0;

export function buildExperimentForm() {
  const label = (text, ...inside) => el("label", {}, el("span", { textContent: text }), ...inside),
    problem = (name) => {
      const box = el("p", { className: "problem of-" + name });
      box.setAttribute("role", "alert");
      return box;
    };
  const field = (i) => {
    const select = el("select", {
        className: "setting setting-" + i,
        ariaLabel: (i ? "Second" : "First") + " varied setting",
      }),
      values = el("input", {
        type: "text",
        className: "values values-" + i,
        spellcheck: false,
        autocomplete: "off",
        maxLength: 600,
      }),
      about = el("p", { className: "hint about" });
    values.setAttribute("aria-label", (i ? "Second" : "First") + " setting's values");
    select.addEventListener("change", () => {
      values.value = (
        state.variableSettings.find((each) => each.name === select.value) || { begin: "" }
      ).begin;
      renderExplanations();
    });
    return { select, values, about, wrong: problem("values-" + i), box: null };
  };
  experimentForm = {
    base: el("select", { className: "base" }),
    fields: [field(0), field(1)],
    seeds: el("input", { type: "text", className: "seeds", value: "0, 1, 2", spellcheck: false }),
    times: el("input", { type: "number", className: "times", min: 1, max: 20, value: 5 }),
    n: el("input", { type: "number", className: "n", min: 20, max: 2000, value: 200 }),
    name: el("input", {
      type: "text",
      className: "name",
      maxLength: 60,
      spellcheck: false,
      placeholder: "from the varied settings",
    }),
    kind: "grid",
    plan: el("p", { className: "hint plan" }),
    cells: el("p", { className: "hint cells" }),
    go: el("button", {
      type: "submit",
      className: "quiet main begin",
      textContent: "Start",
      disabled: true,
    }),
    link: el("button", {
      type: "button",
      className: "quiet link",
      textContent: "Copy link",
      title: "Copy a link to this page with your experiment filled in",
    }),
    wrong: {},
  };
  for (const name of ["base", "seeds", "times", "name", "form"])
    experimentForm.wrong[name] = problem(name);
  experimentForm.plan.setAttribute("role", "status");
  experimentForm.kinds = createSegmentedControl(
    [
      ["grid", "training curves", "Exact match and loss over the steps"],
      [
        "lengths",
        "length generalization",
        "Also evaluates sequences longer than the training sequences",
      ],
    ],
    "grid",
    (kind) => {
      experimentForm.kind = kind;
      renderExplanations();
      planExperiment();
    },
    "Type of comparison",
  );
  experimentForm.lengths = el(
    "div",
    { className: "pair" },
    label("Maximum length, as a multiple of the training length (times)", experimentForm.times),
    label("Sequences per length (n)", experimentForm.n),
  );
  experimentForm.fields.forEach((each, i) => {
    each.box = el(
      "fieldset",
      {},
      el("legend", { textContent: i ? "Second setting (optional)" : "Varied setting" }),
      each.select,
      each.values,
      each.about,
      each.wrong,
    );
  });
  const form = $(".own-form");
  form.append(
    label("Other settings from", experimentForm.base),
    experimentForm.wrong.base,
    ...experimentForm.fields.map((each) => each.box),
    label("Seeds", experimentForm.seeds),
    experimentForm.wrong.seeds,
    el(
      "div",
      { className: "kind-row" },
      el("span", { textContent: "Compare" }),
      experimentForm.kinds,
    ),
    experimentForm.lengths,
    experimentForm.wrong.times,
    label("Name", experimentForm.name),
    experimentForm.wrong.name,
    experimentForm.wrong.form,
    experimentForm.plan,
    experimentForm.cells,
    el("div", { className: "buttons" }, experimentForm.go, experimentForm.link),
  );
  form.addEventListener("input", () => {
    clearTimeout(experimentForm.timer);
    experimentForm.timer = setTimeout(planExperiment, 400);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    experimentForm.go.disabled = true;
    const reply = await requestExperiments("experiments/submit", { form: currentForm() });
    renderFieldErrors(reply);
    experimentForm.go.disabled = false;
    if (!reply.error) openExperiment(reply.experiment, true);
  });
  experimentForm.link.addEventListener("click", () => {
    const form = currentForm();
    copyText(
      buildLink("lab", { ...form, base: form.base.startsWith("checkpoint:") ? form.base : "" }),
      experimentForm.link,
      "The link",
    );
  });
  $(".own").addEventListener("toggle", () => {
    if ($(".own").open) {
      loadBases();
      planExperiment();
    }
  });
}
export function renderSettings() {
  const groups = [...new Set(state.variableSettings.map((each) => each.group))];
  const options = () =>
    groups.map((group) => {
      const box = el("optgroup", { label: group });
      box.append(
        ...state.variableSettings
          .filter((each) => each.group === group)
          .map(
            (each) =>
              new Option(
                each.label.toLowerCase().replaceAll(" ", "_") === each.name
                  ? each.label
                  : each.label + " (" + each.name + ")",
                each.name,
              ),
          ),
      );
      return box;
    });
  experimentForm.fields[0].select.replaceChildren(...options());
  experimentForm.fields[1].select.replaceChildren(new Option("none", ""), ...options());
  const before = loadLocal("own") || {},
    grid = Array.isArray(before.grid) && before.grid.length ? before.grid : [["norm", "pre, post"]];
  grid.slice(0, 2).forEach(([name, values], i) => {
    if (state.variableSettings.some((each) => each.name === name)) {
      experimentForm.fields[i].select.value = name;
      experimentForm.fields[i].values.value = values;
    }
  });
  if (typeof before.seeds === "string") experimentForm.seeds.value = before.seeds;
  if (typeof before.name === "string") experimentForm.name.value = before.name;
  if (before.kind === "lengths") {
    experimentForm.kind = "lengths";
    setPressed(experimentForm.kinds, "lengths");
    for (const name of ["times", "n"])
      if (typeof before[name] === "number") experimentForm[name].value = before[name];
  }
  renderExplanations();
  if ($(".own").open) {
    loadBases();
    planExperiment();
  }
  if (linkState.grid) $(".own").scrollIntoView({ block: "start" });
}
function renderExplanations() {
  for (const each of experimentForm.fields) {
    const setting = state.variableSettings.find((one) => one.name === each.select.value);
    each.values.hidden = !setting;
    setText(
      each.about,
      setting
        ? addPeriod(setting.help) +
            " Accepts " +
            setting.accepts +
            "; default " +
            setting.default +
            "."
        : "",
    );
    each.values.placeholder = "comma-separated values";
  }
  experimentForm.lengths.hidden = experimentForm.kind !== "lengths";
}
async function loadBases() {
  let reply;
  try {
    reply = await request("runs/list", { owner: state.owner });
  } catch (error) {
    return;
  }
  const mine = reply.runs.filter((run) => !run.deleted),
    signature = JSON.stringify([
      mine.map((run) => [run.subject, run.name]),
      reply.checkpoints.map((each) => each.subject),
    ]);
  if (experimentForm.base.dataset.signature === signature) return;
  experimentForm.base.dataset.signature = signature;
  const chosen = experimentForm.base.value || (loadLocal("own") || {}).base || "",
    group = (text, options) => {
      const box = el("optgroup", { label: text });
      box.append(...options);
      return box;
    };
  const visible = mine.filter((run) => !run.hidden || run.subject === chosen);
  experimentForm.base.replaceChildren(
    ...[
      new Option("defaults", ""),
      visible.length &&
        group(
          "Your runs",
          visible.map((run) => new Option(run.name, run.subject)),
        ),
      group(
        "Included checkpoints",
        reply.checkpoints.map((each) => new Option(each.name + ": " + each.about, each.subject)),
      ),
    ].filter(Boolean),
  );
  experimentForm.base.value = [...experimentForm.base.options].some(
    (option) => option.value === chosen,
  )
    ? chosen
    : "";
}
function currentForm() {
  return {
    base: experimentForm.base.value,
    grid: experimentForm.fields
      .filter((each) => each.select.value)
      .map((each) => [each.select.value, each.values.value]),
    seeds: experimentForm.seeds.value,
    kind: experimentForm.kind,
    name: experimentForm.name.value,
    ...(experimentForm.kind === "lengths"
      ? {
          times: experimentForm.times.value && +experimentForm.times.value,
          n: experimentForm.n.value && +experimentForm.n.value,
        }
      : {}),
  };
}
// Show an error next to its field.
function renderFieldErrors(reply) {
  const varied = experimentForm.fields.findIndex(
    (each) => each.select.value && each.select.value === reply.field,
  );
  const errorElements = {
    base: experimentForm.wrong.base,
    seeds: experimentForm.wrong.seeds,
    times: experimentForm.wrong.times,
    n: experimentForm.wrong.times,
    name: experimentForm.wrong.name,
    grid: experimentForm.fields[0].wrong,
  };
  const errorElement =
    varied >= 0
      ? experimentForm.fields[varied].wrong
      : errorElements[reply.field] || experimentForm.wrong.form;
  for (const box of [
    ...Object.values(experimentForm.wrong),
    ...experimentForm.fields.map((each) => each.wrong),
  ])
    setText(box, box === errorElement ? addPeriod(reply.error || "") : "");
}
async function planExperiment() {
  if (!state.variableSettings.length) return;
  const form = currentForm(),
    requestId = ++planRequestId;
  saveLocal("own", form);
  const reply = await requestExperiments("experiments/plan", { form });
  if (requestId !== planRequestId) return;
  renderFieldErrors(reply);
  experimentForm.go.disabled = Boolean(reply.error);
  setText(experimentForm.go, reply.error ? "Start" : "Start " + formatCount(reply.runs, "run"));
  if (reply.error) {
    setText(experimentForm.plan, "");
    setText(experimentForm.cells, "");
    return;
  }
  setText(
    experimentForm.plan,
    formatCount(reply.runs, "run") +
      ": " +
      formatCount(reply.cells.length, "combination") +
      " with " +
      formatCount(reply.runs / reply.cells.length, "seed") +
      "; " +
      formatEstimate(reply.estimate) +
      ".",
  ).title = addPeriod(reply.estimate.message);
  const sizes = [...new Set(reply.cells.map((cell) => cell.parameters))].sort((a, b) => a - b),
    steps = [...new Set(reply.cells.map((cell) => cell.steps))].sort((a, b) => a - b),
    between = (list) =>
      list[0].toLocaleString("en") +
      (list.length > 1 ? " to " + list[list.length - 1].toLocaleString("en") : "");
  setText(experimentForm.cells, between(sizes) + " parameters, " + between(steps) + " steps each.");
}
