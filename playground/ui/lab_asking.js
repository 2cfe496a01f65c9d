// ---------------------------------------------------------------- prepared and new experiments
let settings = [],
  own,
  planned = 0;
const inTime = (estimate) =>
  !estimate
    ? ""
    : estimate.seconds === null
      ? "duration unknown"
      : "about " +
        (estimate.seconds < 120
          ? Math.max(1, Math.round(estimate.seconds)) + " s"
          : Math.round(estimate.seconds / 60) + " min");

async function askQuestions() {
  const reply = await ask("questions");
  if (reply.error) {
    note($(".asking-note"), told(reply.error), "error");
    return;
  }
  update(
    $(".questions"),
    reply.questions,
    (each) => each.name,
    newQuestion,
    (item, each) => {
      item.dataset.experiment = each.experiment || "";
      put(
        item.querySelector(".takes"),
        each.missing
          ? told(each.missing)
          : plural(each.runs, "run") + " · " + inTime(each.estimate),
      ).title = each.estimate ? told(each.estimate.sentence) : "";
      const button = item.querySelector(".run-it");
      put(button, each.experiment ? "Open" : "Run").setAttribute(
        "aria-label",
        (each.experiment ? "Open: " : "Run: ") + each.title,
      );
      button.disabled = Boolean(each.missing);
    },
  );
  if (!settings.length) {
    settings = reply.settings;
    fillSettings();
  }
}
function newQuestion(each) {
  const button = el("button", { type: "button", className: "quiet run-it" }),
    about = el(
      "details",
      {},
      el("summary", { textContent: each.title }),
      el("p", { textContent: each.why }),
      el("p", {
        className: "varied",
        textContent:
          each.varied +
          (each.kind === "lengths"
            ? "; then evaluated on sequences longer than the training sequences"
            : ""),
      }),
    );
  const item = el("li", {}, about, el("span", { className: "takes" }), button);
  button.addEventListener("click", async () => {
    if (item.dataset.experiment) {
      openExperiment(item.dataset.experiment, true);
      return;
    }
    button.disabled = true;
    await begin({ question: each.name }, $(".asking-note"));
    button.disabled = false;
  });
  return item;
}
// Start an experiment and open it. Return the response.
async function begin(what, box) {
  const reply = await ask("begin", what);
  note(box, told(reply.error || ""), "error");
  if (reply.error) return reply;
  openExperiment(reply.experiment, true);
  return reply;
}

// ---------------------------------------------------------------- new experiment
function buildAsking() {
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
      values.value = (settings.find((each) => each.name === select.value) || { begin: "" }).begin;
      explain();
    });
    return { select, values, about, wrong: problem("values-" + i), box: null };
  };
  own = {
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
  for (const name of ["base", "seeds", "times", "name", "form"]) own.wrong[name] = problem(name);
  own.plan.setAttribute("role", "status");
  own.kinds = choice(
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
      own.kind = kind;
      explain();
      plan();
    },
    "Type of comparison",
  );
  own.lengths = el(
    "div",
    { className: "pair" },
    label("Maximum length, as a multiple of the training length (times)", own.times),
    label("Sequences per length (n)", own.n),
  );
  own.fields.forEach((each, i) => {
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
    label("Other settings from", own.base),
    own.wrong.base,
    ...own.fields.map((each) => each.box),
    label("Seeds", own.seeds),
    own.wrong.seeds,
    el("div", { className: "kind-row" }, el("span", { textContent: "Compare" }), own.kinds),
    own.lengths,
    own.wrong.times,
    label("Name", own.name),
    own.wrong.name,
    own.wrong.form,
    own.plan,
    own.cells,
    el("div", { className: "buttons" }, own.go, own.link),
  );
  form.addEventListener("input", () => {
    clearTimeout(own.timer);
    own.timer = setTimeout(plan, 400);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    own.go.disabled = true;
    const reply = await ask("begin", { form: formNow() });
    sayWrong(reply);
    own.go.disabled = false;
    if (!reply.error) openExperiment(reply.experiment, true);
  });
  own.link.addEventListener("click", () => {
    const form = formNow();
    copyText(
      linkWith("lab", { ...form, base: form.base.startsWith("checkpoint:") ? form.base : "" }),
      own.link,
      "The link",
    );
  });
  $(".own").addEventListener("toggle", () => {
    if ($(".own").open) {
      offerBases();
      plan();
    }
  });
}
function fillSettings() {
  const groups = [...new Set(settings.map((each) => each.group))];
  const options = () =>
    groups.map((group) => {
      const box = el("optgroup", { label: group });
      box.append(
        ...settings
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
  own.fields[0].select.replaceChildren(...options());
  own.fields[1].select.replaceChildren(new Option("none", ""), ...options());
  const before = kept("own") || {},
    grid = Array.isArray(before.grid) && before.grid.length ? before.grid : [["norm", "pre, post"]];
  grid.slice(0, 2).forEach(([name, values], i) => {
    if (settings.some((each) => each.name === name)) {
      own.fields[i].select.value = name;
      own.fields[i].values.value = values;
    }
  });
  if (typeof before.seeds === "string") own.seeds.value = before.seeds;
  if (typeof before.name === "string") own.name.value = before.name;
  if (before.kind === "lengths") {
    own.kind = "lengths";
    press(own.kinds, "lengths");
    for (const name of ["times", "n"])
      if (typeof before[name] === "number") own[name].value = before[name];
  }
  explain();
  if ($(".own").open) {
    offerBases();
    plan();
  }
  if (ofLink.grid) $(".own").scrollIntoView({ block: "start" });
}
function explain() {
  for (const each of own.fields) {
    const setting = settings.find((one) => one.name === each.select.value);
    each.values.hidden = !setting;
    put(
      each.about,
      setting
        ? told(setting.help) + " Accepts " + setting.accepts + "; default " + setting.default + "."
        : "",
    );
    each.values.placeholder = "comma-separated values";
  }
  own.lengths.hidden = own.kind !== "lengths";
}
async function offerBases() {
  let reply;
  try {
    reply = await call("runs", { owner });
  } catch (error) {
    return;
  }
  const mine = reply.runs.filter((run) => !run.deleted),
    signature = JSON.stringify([
      mine.map((run) => [run.subject, run.name]),
      reply.checkpoints.map((each) => each.subject),
    ]);
  if (own.base.dataset.signature === signature) return;
  own.base.dataset.signature = signature;
  const chosen = own.base.value || (kept("own") || {}).base || "",
    group = (text, options) => {
      const box = el("optgroup", { label: text });
      box.append(...options);
      return box;
    };
  const visible = mine.filter((run) => !run.hidden || run.subject === chosen);
  own.base.replaceChildren(
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
  own.base.value = [...own.base.options].some((option) => option.value === chosen) ? chosen : "";
}
function formNow() {
  return {
    base: own.base.value,
    grid: own.fields
      .filter((each) => each.select.value)
      .map((each) => [each.select.value, each.values.value]),
    seeds: own.seeds.value,
    kind: own.kind,
    name: own.name.value,
    ...(own.kind === "lengths"
      ? { times: own.times.value && +own.times.value, n: own.n.value && +own.n.value }
      : {}),
  };
}
// Show an error next to its field.
function sayWrong(reply) {
  const varied = own.fields.findIndex(
    (each) => each.select.value && each.select.value === reply.field,
  );
  const places = {
    base: own.wrong.base,
    seeds: own.wrong.seeds,
    times: own.wrong.times,
    n: own.wrong.times,
    name: own.wrong.name,
    grid: own.fields[0].wrong,
  };
  const place = varied >= 0 ? own.fields[varied].wrong : places[reply.field] || own.wrong.form;
  for (const box of [...Object.values(own.wrong), ...own.fields.map((each) => each.wrong)])
    put(box, box === place ? told(reply.error || "") : "");
}
async function plan() {
  if (!settings.length) return;
  const form = formNow(),
    mine = ++planned;
  keep("own", form);
  const reply = await ask("plan", { form });
  if (mine !== planned) return;
  sayWrong(reply);
  own.go.disabled = Boolean(reply.error);
  put(own.go, reply.error ? "Start" : "Start " + plural(reply.runs, "run"));
  if (reply.error) {
    put(own.plan, "");
    put(own.cells, "");
    return;
  }
  put(
    own.plan,
    plural(reply.runs, "run") +
      ": " +
      plural(reply.cells.length, "combination") +
      " with " +
      plural(reply.runs / reply.cells.length, "seed") +
      "; " +
      inTime(reply.estimate) +
      ".",
  ).title = told(reply.estimate.sentence);
  const sizes = [...new Set(reply.cells.map((cell) => cell.parameters))].sort((a, b) => a - b),
    steps = [...new Set(reply.cells.map((cell) => cell.steps))].sort((a, b) => a - b),
    between = (list) =>
      list[0].toLocaleString("en") +
      (list.length > 1 ? " to " + list[list.length - 1].toLocaleString("en") : "");
  put(own.cells, between(sizes) + " parameters, " + between(steps) + " steps each.");
}
