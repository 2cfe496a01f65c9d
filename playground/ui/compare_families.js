// Matched parameters: other architectures with the parameter count of the user's model, trained on
// the
// same data by the same Trainer. They are ordinary runs.
const HUES = [
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#5b3fc4", "#b7a4ff"],
  ["#c0392b", "#ff7b61"],
  ["#7a5c00", "#d9c34a"],
];
const GOOD_ENOUGH = 0.99,
  UNDER_WAY = ["waiting", "starting", "training", "stopping"];
const budget = {
  offered: [],
  chosen: new Set(["bert", "gpt2", "bart", "transformer"]),
  runs: [],
  curves: [],
  asked: 0,
  lengths: null,
};
let fam;

VIEWS.families = {
  title: "Matched parameters",
  explain:
    "Trains encoder-only, decoder-only and encoder-decoder models with the parameter count " +
    "of your model from scratch on the same data, and compares their steps to 99 % exact " +
    "match.",
  build(box) {
    const before = kept("families");
    if (Array.isArray(before))
      budget.runs = before.filter((each) => each && typeof each.subject === "string").slice(0, 8);
    const length = (name, label) =>
      el(
        "label",
        {},
        label,
        el("input", { type: "number", min: 1, max: 512, step: 1, className: name }),
      );
    fam = {
      list: el("ul", { className: "asked" }),
      words: el("p", { className: "hint sum" }),
      problem: el("p", { className: "problem" }),
      go: el("button", {
        type: "submit",
        className: "quiet main train-them",
        textContent: "Train",
      }),
      caption: el("p", {
        className: "fairness",
        textContent:
          "All architectures use the same training and held-out sequences, random initial " +
          "weights, and their own default learning rate. A run stops at 99 % exact match. " +
          "Times depend on this machine and its load.",
      }),
      score: el("canvas", { className: "score-chart" }),
      loss: el("canvas", { className: "loss-chart" }),
      body: el("tbody"),
      known: el("div", { className: "known" }),
    };
    fam.problem.setAttribute("role", "alert");
    for (const [canvas, text] of [
      [fam.score, "Exact match of each architecture by training step"],
      [fam.loss, "Loss of each architecture by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const form = el(
      "form",
      { className: "numbers" },
      length("shortest", "Shortest"),
      length("longest", "Longest"),
      fam.words,
      fam.go,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      trainThem();
    });
    form.addEventListener("input", () => {
      clearTimeout(fam.timer);
      fam.timer = setTimeout(() => offerFamilies(false), 400);
    });
    fam.shortest = form.querySelector(".shortest");
    fam.longest = form.querySelector(".longest");
    const head = el(
      "tr",
      {},
      ...[
        ["architecture", ""],
        ["status", ""],
        ["parameters", "number"],
        ["steps to 99 %", "number"],
        ["time to 99 %", "number"],
        ["exact match", "number"],
        ["actions", ""],
      ].map(([text, kind]) => el("th", { scope: "col", textContent: text, className: kind })),
    );
    const chartBox = (title, canvas) =>
      el("figure", {}, el("figcaption", { textContent: title }), canvas);
    box.append(
      el(
        "div",
        { className: "columns" },
        el(
          "section",
          { className: "side", ariaLabel: "Architectures" },
          el("h3", { textContent: "Architectures" }),
          fam.list,
          form,
          fam.problem,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          fam.caption,
          el(
            "div",
            { className: "charts" },
            chartBox("Exact match on held-out sequences", fam.score),
            chartBox("Loss (logarithmic)", fam.loss),
          ),
          el(
            "div",
            { className: "scrolling", tabIndex: 0 },
            el("table", { className: "sheet learners" }, el("thead", {}, head), fam.body),
          ),
        ),
      ),
      fam.known,
    );
    drawLearners();
    watchThem();
  },
  show() {
    if (!budget.offered.length) offerFamilies(true);
    if (!fam.known.children.length) tellKnown();
    drawCurves();
  },
  chosen() {
    budget.lengths = null;
    if (state.view === "families") offerFamilies(true);
    else budget.offered = [];
  },
};

// ---------------------------------------------------------------- available architectures
async function offerFamilies(anew) {
  const lengths =
      anew || !fam.shortest.value
        ? {}
        : { min_length: +fam.shortest.value, max_length: +fam.longest.value },
    question = JSON.stringify([state.subject, lengths]);
  if (budget.question === question) return; // already requested
  budget.question = question;
  const mine = ++budget.asked;
  if (!budget.offered.length) fam.words.textContent = "Matching parameter counts";
  let told;
  try {
    told = await call("compare-budget", { owner, subject: state.subject, ...lengths }, 60000);
  } catch (error) {
    told = { error: "the server did not respond; try again" };
  }
  if (mine !== budget.asked) return;
  budget.question = "";
  fam.problem.textContent = sentenceOf(told.error || "");
  fam.go.disabled = Boolean(told.error);
  if (told.error) return; // the previous list stays
  Object.assign(budget, { offered: told.families, task: told.task, parameters: told.parameters });
  if (anew) {
    fam.shortest.value = told.min_length;
    fam.longest.value = told.max_length;
  }
  listFamilies();
}
function listFamilies() {
  fam.list.replaceChildren(
    ...budget.offered.map((each) => {
      const tick = el("input", {
          type: "checkbox",
          checked: budget.chosen.has(each.family),
          disabled: Boolean(each.error),
        }),
        off = each.parameters ? each.parameters / budget.parameters - 1 : 0;
      tick.addEventListener("change", () => {
        if (tick.checked) budget.chosen.add(each.family);
        else budget.chosen.delete(each.family);
        sayFamilies();
      });
      return el(
        "li",
        { title: each.sentence },
        el("label", {}, tick, el("span", { className: "name", textContent: each.title })),
        el("span", {
          className: "takes" + (each.error ? " error" : ""),
          textContent: each.error
            ? sentenceOf(each.error)
            : (each.own ? "like yours: " : "") +
              each.parameters.toLocaleString("en") +
              " parameters" +
              (Math.abs(off) < 0.0005
                ? ""
                : ", " + (off > 0 ? "+" : "−") + Math.abs(100 * off).toFixed(1) + " %"),
        }),
      );
    }),
  );
  sayFamilies();
}
function sayFamilies() {
  const n = budget.offered.filter((each) => budget.chosen.has(each.family) && !each.error).length;
  fam.words.textContent =
    budget.task + "; your model has " + plural(budget.parameters, "parameter") + ".";
  fam.go.textContent = n ? "Train " + plural(n, "model") : "Train";
  fam.go.disabled = !n;
}
async function trainThem() {
  const families = budget.offered
    .filter((each) => budget.chosen.has(each.family) && !each.error)
    .map((each) => each.family);
  fam.go.disabled = true;
  let told;
  try {
    told = await call("compare-train", {
      owner,
      subject: state.subject,
      families,
      min_length: +fam.shortest.value,
      max_length: +fam.longest.value,
    });
  } catch (error) {
    told = { error: "the server did not respond; try again" };
  }
  fam.go.disabled = false;
  fam.problem.textContent = sentenceOf(told.error || "");
  if (!told.runs || !told.runs.length) return;
  budget.runs = told.runs;
  budget.curves = [];
  keep("families", budget.runs);
  drawLearners();
  await follow();
}

// ---------------------------------------------------------------- training curves
async function watchThem() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await rest(500);
    if (!owner || !budget.runs.length || document.hidden || !fam.body.offsetParent) continue;
    if (
      budget.curves.length < budget.runs.length ||
      budget.curves.some((each) => UNDER_WAY.includes(each.status)) ||
      round % 10 === 0
    )
      await follow();
  }
}
async function follow() {
  const runs = budget.runs;
  let told;
  try {
    told = await call("compare-curves", { owner, subjects: runs.map((each) => each.subject) });
  } catch (error) {
    return;
  }
  if (runs !== budget.runs) return;
  if (told.curves.length < runs.length) {
    budget.runs = runs.filter((each) =>
      told.curves.some((curve) => curve.subject === each.subject),
    );
    keep("families", budget.runs);
  } // runs that were deleted
  budget.curves = told.curves;
  drawLearners();
  drawCurves();
}
const hueOf = (i) => HUES[i % HUES.length][document.body.classList.contains("dark") ? 1 : 0];
function drawLearners() {
  const rows = budget.runs.map((each, i) => {
    const curve = budget.curves.find((other) => other.subject === each.subject) || {
        status: "waiting",
        scored: [],
        step: 0,
        name: "",
      },
      signature = JSON.stringify([
        each.subject,
        curve.status,
        curve.step,
        curve.reached,
        curve.place,
        i,
      ]);
    const before = [...fam.body.children].find((row) => row.dataset.subject === each.subject);
    if (before && before.dataset.signature === signature) return before;
    const last = curve.scored.length ? curve.scored[curve.scored.length - 1] : null,
      how =
        curve.status === "waiting" && curve.place
          ? "queued"
          : curve.status === "done" || curve.status === "stopped"
            ? curve.status + " at step " + curve.step.toLocaleString("en")
            : curve.status +
              (curve.step
                ? ", step " +
                  curve.step.toLocaleString("en") +
                  " of " +
                  curve.steps.toLocaleString("en")
                : "");
    const link = (text, title, act) => {
      const button = el("button", { type: "button", className: "quiet", textContent: text, title });
      button.addEventListener("click", act);
      return button;
    };
    const name = el(
      "td",
      { className: "who" },
      el("span", {
        className: "swatch" + (i % 2 ? " dashed" : ""),
        style: "--colour:var(--hue-" + i + ")",
      }),
      el("span", { className: "name", textContent: each.title }),
      el("span", { className: "what", textContent: curve.name.replace(each.title + ": ", "") }),
    );
    const row = el(
      "tr",
      {},
      name,
      el("td", { textContent: how + (curve.message ? ": " + curve.message : "") }),
      el("td", {
        className: "number",
        textContent: curve.parameters ? curve.parameters.toLocaleString("en") : "",
      }),
      el("td", {
        className: "number",
        textContent: curve.reached ? curve.reached[0].toLocaleString("en") : "–",
        title: "The first evaluation with at least 99 % exact match on held-out sequences",
      }),
      el("td", {
        className: "number",
        textContent: curve.reached ? duration(curve.reached[1]) : "–",
        title: "Training time until then",
      }),
      el("td", {
        className: "number",
        textContent: last ? percent(last[1]) : "–",
        title: last ? "of " + plural(last[3], "held-out sequence") + " at step " + last[0] : "",
      }),
      el(
        "td",
        { className: "links" },
        link("Train", "Open this run in the Train tab", () => goTo("Train", each.subject)),
        " ",
        link("Inspect", "Open this run in the Inspect tab", () =>
          goTo("Inspect", { subject: each.subject, step: null }),
        ),
      ),
    );
    row.dataset.subject = each.subject;
    row.dataset.signature = signature;
    row.dataset.family = each.family;
    row.dataset.reached = curve.reached ? curve.reached[0] : "";
    row.dataset.status = curve.status;
    return row;
  });
  const same =
    rows.length &&
    rows.length === fam.body.children.length &&
    rows.every((row, i) => fam.body.children[i] === row);
  if (!same)
    fam.body.replaceChildren(
      ...(rows.length
        ? rows
        : [
            el(
              "tr",
              { className: "to-come" },
              el(
                "td",
                { colSpan: 7 },
                el("span", {
                  className: "nobody",
                  textContent: "No runs yet. Select architectures and press Train.",
                }),
              ),
            ),
          ]),
    );
  root.style.cssText = budget.runs.map((_, i) => "--hue-" + i + ":" + hueOf(i)).join(";");
}
function drawCurves() {
  if (!fam.score.clientWidth) return;
  root.style.cssText = budget.runs.map((_, i) => "--hue-" + i + ":" + hueOf(i)).join(";");
  const curves = budget.runs.map((each) =>
      budget.curves.find((curve) => curve.subject === each.subject),
    ),
    most = Math.max(
      10,
      ...curves.map((curve) =>
        curve
          ? Math.max(
              curve.step,
              curve.status === "done" ? 0 : Math.min(curve.steps, 2 * Math.max(100, curve.step)),
            )
          : 0,
      ),
    );
  lines(
    fam.score,
    curves.map((curve) => (curve ? curve.scored.map((s) => [s[0], s[1]]) : [])),
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [GOOD_ENOUGH, "99 %"],
    ],
    most,
  );
  const logs = curves.map((curve) =>
      curve ? curve.loss.map(([step, loss]) => [step, Math.log10(Math.max(loss, 1e-6))]) : [],
    ),
    all = logs.flat().map(([, v]) => v),
    low = Math.floor(Math.min(-1, ...all)),
    high = Math.max(0.5, ...all);
  const ticks = [];
  for (let e = low; e <= high; e++)
    ticks.push([e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
  lines(fam.loss, logs, [low, high + 0.1], ticks, most);
  fam.score.drawn = curves; // tests read this property
}
function lines(canvas, series, range, ticks, most, across = "step", tall = 200) {
  const [c, width, height] = prepare(canvas, tall),
    left = 44,
    right = width - 8,
    top = 8,
    bottom = height - 22;
  const x = (step) => left + ((right - left) * step) / most,
    y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0]);
  c.font = "12px " + css("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = css("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(value)) + 0.5);
    c.lineTo(right, Math.round(y(value)) + 0.5);
    c.stroke();
    c.fillStyle = css("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic";
  c.textAlign = "left";
  c.fillText("0", left, height - 4);
  c.textAlign = "right";
  c.fillText(across + " " + most.toLocaleString("en"), right, height - 4);
  series.forEach((values, i) => {
    c.strokeStyle = c.fillStyle = hueOf(i);
    c.lineWidth = 1.8;
    c.lineJoin = "round";
    c.setLineDash(i % 2 ? [6, 3] : []);
    c.beginPath();
    values.forEach(([step, v], k) => (k ? c.lineTo(x(step), y(v)) : c.moveTo(x(step), y(v))));
    c.stroke();
    c.setLineDash([]);
  });
}

// ---------------------------------------------------------------- facts on architectures
const ASPECTS = [
  ["examples", "examples"],
  ["direction", "attention"],
  ["generates", "generation"],
  ["objective", "objective"],
  ["cross_attention", "cross-attention"],
  ["best_for", "best for"],
];
async function tellKnown() {
  let told;
  try {
    told = await call("compare-known", {});
  } catch (error) {
    return;
  }
  const reading = (title, columns, rows) => [
    el("h3", { textContent: title }),
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el(
        "table",
        { className: "reading" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...columns.map((text) => el("th", { scope: "col" }, text || unseen("Property"))),
          ),
        ),
        el(
          "tbody",
          {},
          ...rows.map((row) =>
            el(
              "tr",
              {},
              ...row.map((text, i) =>
                el(
                  i ? "td" : "th",
                  i ? { textContent: text } : { scope: "row", textContent: text },
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  ];
  fam.known.replaceChildren(
    ...reading(
      "Three architectures",
      ["", ...told.families.map((each) => each.family)],
      ASPECTS.map(([key, label]) => [label, ...told.families.map((each) => each[key])]),
    ),
    ...reading(
      "History",
      [
        "year",
        "model",
        "based on",
        "architecture",
        "contribution",
        "use",
        "in this playground",
        "source",
      ],
      told.tree.map((each) => [
        String(each.year),
        each.name,
        each.from.join(", ") || "recurrent models with attention",
        each.family,
        each.idea,
        each.use,
        each.here,
        each.source,
      ]),
    ),
  );
}
