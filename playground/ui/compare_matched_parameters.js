// Matched parameters: other architectures with the parameter count of the user's model, trained on
// the same data by the same Trainer. They are ordinary runs.
const SERIES_COLORS = [
  ["#d98200", "#ffb000"],
  ["#00795a", "#2fd6a5"],
  ["#b8478c", "#f08fc4"],
  ["#5b3fc4", "#b7a4ff"],
  ["#c0392b", "#ff7b61"],
  ["#7a5c00", "#d9c34a"],
];
const TARGET_SCORE = 0.99,
  ACTIVE_STATUSES = ["waiting", "starting", "training", "stopping"];
const matchedFamilies = {
  offered: [],
  chosen: new Set(["bert", "gpt2", "bart", "transformer"]),
  runs: [],
  curves: [],
  requestId: 0,
  lengths: null,
};
let familiesView;

VIEWS.families = {
  title: "Matched parameters",
  explain:
    "Trains encoder-only, decoder-only and encoder-decoder models with the parameter count " +
    "of your model from scratch on the same data, and compares their steps to 99 % exact " +
    "match.",
  build(box) {
    const before = loadLocal("families");
    if (Array.isArray(before))
      matchedFamilies.runs = before
        .filter((each) => each && typeof each.subject === "string")
        .slice(0, 8);
    const length = (name, label) =>
      el(
        "label",
        {},
        label,
        el("input", { type: "number", min: 1, max: 512, step: 1, className: name }),
      );
    familiesView = {
      list: el("ul", { className: "suggestions" }),
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
      facts: el("div", { className: "facts" }),
    };
    familiesView.problem.setAttribute("role", "alert");
    for (const [canvas, text] of [
      [familiesView.score, "Exact match of each architecture by training step"],
      [familiesView.loss, "Loss of each architecture by training step"],
    ]) {
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", text);
    }
    const form = el(
      "form",
      { className: "numbers" },
      length("shortest", "Shortest"),
      length("max-length", "Longest"),
      familiesView.words,
      familiesView.go,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      trainFamilies();
    });
    form.addEventListener("input", () => {
      clearTimeout(familiesView.timer);
      familiesView.timer = setTimeout(() => loadMatchedFamilies(false), 400);
    });
    familiesView.shortest = form.querySelector(".shortest");
    familiesView.maxLength = form.querySelector(".max-length");
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
          familiesView.list,
          form,
          familiesView.problem,
        ),
        el(
          "section",
          { className: "main-part", ariaLabel: "Training curves" },
          familiesView.caption,
          el(
            "div",
            { className: "charts" },
            chartBox(EXACT_MATCH_TITLE, familiesView.score),
            chartBox("Loss (logarithmic)", familiesView.loss),
          ),
          el(
            "div",
            { className: "scrolling", tabIndex: 0 },
            el("table", { className: "sheet learners" }, el("thead", {}, head), familiesView.body),
          ),
        ),
      ),
      familiesView.facts,
    );
    renderLearners();
    watchFamilies();
  },
  show() {
    if (!matchedFamilies.offered.length) loadMatchedFamilies(true);
    if (!familiesView.facts.children.length) renderFacts();
    paintCurves();
  },
  chosen() {
    matchedFamilies.lengths = null;
    if (state.view === "families") loadMatchedFamilies(true);
    else matchedFamilies.offered = [];
  },
};

// ---------------------------------------------------------------- available architectures
async function loadMatchedFamilies(reset) {
  const lengths =
      reset || !familiesView.shortest.value
        ? {}
        : { min_length: +familiesView.shortest.value, max_length: +familiesView.maxLength.value },
    requestKey = JSON.stringify([state.subject, lengths]);
  if (matchedFamilies.question === requestKey) return; // already requested
  matchedFamilies.question = requestKey;
  const requestId = ++matchedFamilies.requestId;
  if (!matchedFamilies.offered.length) familiesView.words.textContent = "Matching parameter counts";
  let response;
  try {
    response = await request(
      "architectures/matched",
      { owner, subject: state.subject, ...lengths },
      60000,
    );
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  if (requestId !== matchedFamilies.requestId) return;
  matchedFamilies.question = "";
  familiesView.problem.textContent = formatMessage(response.error || "");
  familiesView.go.disabled = Boolean(response.error);
  if (response.error) return; // the previous list stays
  Object.assign(matchedFamilies, {
    offered: response.families,
    task: response.task,
    parameters: response.parameters,
  });
  if (reset) {
    familiesView.shortest.value = response.min_length;
    familiesView.maxLength.value = response.max_length;
  }
  renderFamilies();
}
function renderFamilies() {
  familiesView.list.replaceChildren(
    ...matchedFamilies.offered.map((each) => {
      const tick = el("input", {
          type: "checkbox",
          checked: matchedFamilies.chosen.has(each.architecture),
          disabled: Boolean(each.error),
        }),
        off = each.parameters ? each.parameters / matchedFamilies.parameters - 1 : 0;
      tick.addEventListener("change", () => {
        if (tick.checked) matchedFamilies.chosen.add(each.architecture);
        else matchedFamilies.chosen.delete(each.architecture);
        renderFamilyNote();
      });
      return el(
        "li",
        { title: each.description },
        el("label", {}, tick, el("span", { className: "name", textContent: each.title })),
        el("span", {
          className: "takes" + (each.error ? " error" : ""),
          textContent: each.error
            ? formatMessage(each.error)
            : (each.is_current ? "like yours: " : "") +
              each.parameters.toLocaleString("en") +
              " parameters" +
              (Math.abs(off) < 0.0005
                ? ""
                : ", " + (off > 0 ? "+" : "−") + Math.abs(100 * off).toFixed(1) + " %"),
        }),
      );
    }),
  );
  renderFamilyNote();
}
function renderFamilyNote() {
  const n = matchedFamilies.offered.filter(
    (each) => matchedFamilies.chosen.has(each.architecture) && !each.error,
  ).length;
  familiesView.words.textContent =
    matchedFamilies.task +
    "; your model has " +
    pluralize(matchedFamilies.parameters, "parameter") +
    ".";
  familiesView.go.textContent = n ? "Train " + pluralize(n, "model") : "Train";
  familiesView.go.disabled = !n;
}
async function trainFamilies() {
  const families = matchedFamilies.offered
    .filter((each) => matchedFamilies.chosen.has(each.architecture) && !each.error)
    .map((each) => each.architecture);
  familiesView.go.disabled = true;
  let response;
  try {
    response = await request("architectures/train", {
      owner,
      subject: state.subject,
      families,
      min_length: +familiesView.shortest.value,
      max_length: +familiesView.maxLength.value,
    });
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  familiesView.go.disabled = false;
  familiesView.problem.textContent = formatMessage(response.error || "");
  if (!response.runs || !response.runs.length) return;
  matchedFamilies.runs = response.runs;
  matchedFamilies.curves = [];
  saveLocal("families", matchedFamilies.runs);
  renderLearners();
  await loadCurves();
}

// ---------------------------------------------------------------- training curves
async function watchFamilies() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(500);
    if (
      !owner ||
      !matchedFamilies.runs.length ||
      document.hidden ||
      !familiesView.body.offsetParent
    )
      continue;
    if (
      matchedFamilies.curves.length < matchedFamilies.runs.length ||
      matchedFamilies.curves.some((each) => ACTIVE_STATUSES.includes(each.status)) ||
      round % 10 === 0
    )
      await loadCurves();
  }
}
async function loadCurves() {
  const runs = matchedFamilies.runs;
  let response;
  try {
    response = await request("architectures/curves", {
      owner,
      subjects: runs.map((each) => each.subject),
    });
  } catch (error) {
    return;
  }
  if (runs !== matchedFamilies.runs) return;
  if (response.curves.length < runs.length) {
    matchedFamilies.runs = runs.filter((each) =>
      response.curves.some((curve) => curve.subject === each.subject),
    );
    saveLocal("families", matchedFamilies.runs);
  } // runs that were deleted
  matchedFamilies.curves = response.curves;
  renderLearners();
  paintCurves();
}
const seriesColor = (i) =>
  SERIES_COLORS[i % SERIES_COLORS.length][document.body.classList.contains("dark") ? 1 : 0];
function renderLearners() {
  const rows = matchedFamilies.runs.map((each, i) => {
    const curve = matchedFamilies.curves.find((other) => other.subject === each.subject) || {
        status: "waiting",
        evaluations: [],
        step: 0,
        name: "",
      },
      signature = JSON.stringify([
        each.subject,
        curve.status,
        curve.step,
        curve.reached,
        curve.queue_position,
        i,
      ]);
    const before = [...familiesView.body.children].find(
      (row) => row.dataset.subject === each.subject,
    );
    if (before && before.dataset.signature === signature) return before;
    const last = curve.evaluations.length ? curve.evaluations[curve.evaluations.length - 1] : null,
      how =
        curve.status === "waiting" && curve.queue_position
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
        textContent: curve.reached ? formatDuration(curve.reached[1]) : "–",
        title: "Training time until then",
      }),
      el("td", {
        className: "number",
        textContent: last ? formatPercent(last[1]) : "–",
        title: last ? "of " + pluralize(last[3], "held-out sequence") + " at step " + last[0] : "",
      }),
      el(
        "td",
        { className: "links" },
        link("Train", "Open this run in the Train tab", () => navigate("Train", each.subject)),
        " ",
        link("Inspect", "Open this run in the Inspect tab", () =>
          navigate("Inspect", { subject: each.subject, step: null }),
        ),
      ),
    );
    row.dataset.subject = each.subject;
    row.dataset.signature = signature;
    row.dataset.architecture = each.architecture;
    row.dataset.reached = curve.reached ? curve.reached[0] : "";
    row.dataset.status = curve.status;
    return row;
  });
  const same =
    rows.length &&
    rows.length === familiesView.body.children.length &&
    rows.every((row, i) => familiesView.body.children[i] === row);
  if (!same)
    familiesView.body.replaceChildren(
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
                  className: "empty",
                  textContent: "No runs yet. Select architectures and press Train.",
                }),
              ),
            ),
          ]),
    );
  root.style.cssText = matchedFamilies.runs
    .map((_, i) => "--hue-" + i + ":" + seriesColor(i))
    .join(";");
}
function paintCurves() {
  if (!familiesView.score.clientWidth) return;
  root.style.cssText = matchedFamilies.runs
    .map((_, i) => "--hue-" + i + ":" + seriesColor(i))
    .join(";");
  const curves = matchedFamilies.runs.map((each) =>
      matchedFamilies.curves.find((curve) => curve.subject === each.subject),
    ),
    maxValue = Math.max(
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
  paintLines(
    familiesView.score,
    curves.map((curve) => (curve ? curve.evaluations.map((s) => [s[0], s[1]]) : [])),
    [0, 1],
    [
      [0, "0"],
      [0.5, "50 %"],
      [TARGET_SCORE, "99 %"],
    ],
    maxValue,
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
  paintLines(familiesView.loss, logs, [low, high + 0.1], ticks, maxValue);
  familiesView.score.drawn = curves; // tests read this property
}
function paintLines(canvas, series, range, ticks, maxValue, across = "step", tall = 200) {
  const [c, width, height] = setUpCanvas(canvas, tall),
    left = 44,
    right = width - 8,
    top = 8,
    bottom = height - 22;
  const x = (step) => left + ((right - left) * step) / maxValue,
    y = (v) => bottom - ((bottom - top) * (v - range[0])) / (range[1] - range[0]);
  c.font = "12px " + cssVariable("--font");
  c.textBaseline = "middle";
  c.lineWidth = 1;
  for (const [value, text] of ticks) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(value)) + 0.5);
    c.lineTo(right, Math.round(y(value)) + 0.5);
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.textAlign = "right";
    c.fillText(text, left - 6, y(value));
  }
  c.textBaseline = "alphabetic";
  c.textAlign = "left";
  c.fillText("0", left, height - 4);
  c.textAlign = "right";
  c.fillText(across + " " + maxValue.toLocaleString("en"), right, height - 4);
  series.forEach((values, i) => {
    c.strokeStyle = c.fillStyle = seriesColor(i);
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
const FACT_COLUMNS = [
  ["examples", "examples"],
  ["direction", "attention"],
  ["generates", "generation"],
  ["objective", "objective"],
  ["cross_attention", "cross-attention"],
  ["best_for", "best for"],
];
async function renderFacts() {
  let response;
  try {
    response = await request("models/facts", {});
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
            ...columns.map((text) =>
              el("th", { scope: "col" }, text || visuallyHidden("Property")),
            ),
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
  familiesView.facts.replaceChildren(
    ...reading(
      "Three architectures",
      ["", ...response.families.map((each) => each.architecture)],
      FACT_COLUMNS.map(([key, label]) => [label, ...response.families.map((each) => each[key])]),
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
      response.tree.map((each) => [
        String(each.year),
        each.name,
        each.from.join(", ") || "recurrent models with attention",
        each.architecture,
        each.idea,
        each.use,
        each.here,
        each.source,
      ]),
    ),
  );
}
