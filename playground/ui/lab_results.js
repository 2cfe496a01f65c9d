// ---------------------------------------------------------------- the open experiment
const INITIAL_VARIANTS = 12; // lines that are visible by default
let resultsView,
  hiddenVariants = new Set(),
  hiddenVariantsOf = "",
  isExporting = false;

function buildResults() {
  const figure = (title, className, text) => {
    const canvas = el("canvas", { className }),
      caption = el("p", { className: "caption" }),
      box = el(
        "figure",
        {},
        el("figcaption", { textContent: title, title: text }),
        canvas,
        caption,
      );
    caption.setAttribute("aria-live", "polite");
    return { canvas, caption, box, title };
  };
  resultsView = {
    title: el("h3", { className: "title" }),
    words: el("p", { className: "words" }),
    bar: el("span", { className: "share" }, el("i")),
    actions: null,
    summary: el("p", { className: "summary" }),
    also: el("p", { className: "also" }),
    legend: el("div", { className: "legend" }),
    byLength: figure(
      "Exact match by length",
      "by-length-chart",
      "Held-out sequences of each length, free-running",
    ),
    heat: figure(
      "Heat map",
      "heat-chart",
      "Medians of the same data; darker (brighter in dark mode) is a higher exact match",
    ),
    score: figure(EXACT_MATCH_TITLE, "score-chart", "Evaluated free-running during training"),
    loss: figure(
      "Training loss (logarithmic)",
      "loss-chart",
      "Mean cross-entropy of the training batches between two evaluations",
    ),
    head: el("thead"),
    body: el("tbody"),
    untrained: el("p", { className: "hint untrained" }),
    links: el("div", { className: "bar" }),
    note: el("p", { className: "problem results-note" }),
    runsBody: el("tbody"),
    runsWords: el("summary"),
    empty: el("p", {
      className: "empty",
      textContent:
        "No experiment is open. Run a prepared experiment to see its summary, curves and table.",
    }),
  };
  resultsView.note.setAttribute("role", "alert");
  resultsView.summary.setAttribute("aria-live", "polite");
  resultsView.legend.setAttribute("role", "group");
  resultsView.legend.setAttribute("aria-label", "Visible lines");
  const button = (text, title, act, className = "") => {
    const made = el("button", {
      type: "button",
      className: "quiet " + className,
      textContent: text,
      title,
    });
    made.addEventListener("click", act);
    return made;
  };
  resultsView.all = button(
    "Curves in Train",
    "Overlay one run of each line in the Train tab: the first finished seed",
    () =>
      overlayInTrain(
        visibleVariants()
          .map((cell) => cell.seeds.find((run) => run.done) || cell.seeds.find((run) => run.run))
          .filter(Boolean)
          .map((run) => run.run),
      ),
    "all-in-train",
  );
  resultsView.files = el(
    "span",
    { className: "files" },
    button("CSV", "Every number in the table", exportCsv, "as-csv"),
    button(
      "JSON",
      "All results with the settings",
      () =>
        downloadBlob(
          fileName("json"),
          new Blob(
            [
              JSON.stringify(
                {
                  name: state.details.name,
                  question: state.details.question,
                  ...state.details.results,
                  runs: state.details.lines,
                },
                null,
                1,
              ),
            ],
            { type: "application/json" },
          ),
        ),
      "as-json",
    ),
    button("Figures", "PNG, SVG and PDF in one zip file", exportFigures, "as-figures"),
  );
  resultsView.links.append(resultsView.all, resultsView.files);
  resultsView.runs = el(
    "details",
    { className: "runs-of" },
    resultsView.runsWords,
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el(
        "table",
        { className: "sheet" },
        el(
          "thead",
          {},
          createHeadRow([
            ["run", ""],
            ["seed", "number"],
            ["status", ""],
            ["actions", ""],
          ]),
        ),
        resultsView.runsBody,
      ),
    ),
  );
  resultsView.whole = el(
    "div",
    { className: "whole", hidden: true },
    el("div", { className: "headline" }, resultsView.title),
    resultsView.words,
    resultsView.bar,
    resultsView.summary,
    resultsView.also,
    resultsView.legend,
    el("div", { className: "charts wide" }, resultsView.byLength.box, resultsView.heat.box),
    el("div", { className: "charts" }, resultsView.score.box, resultsView.loss.box),
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el("table", { className: "sheet cells" }, resultsView.head, resultsView.body),
    ),
    resultsView.untrained,
    resultsView.links,
    resultsView.note,
    resultsView.runs,
  );
  $(".results").append(resultsView.empty, resultsView.whole);
  onResizeOrThemeChange(renderCharts);
}
const createHeadRow = (names) =>
  el(
    "tr",
    {},
    ...names.map(([text, kind, title, hidden]) =>
      el(
        "th",
        { scope: "col", className: kind, title: title || "" },
        hidden ? visuallyHidden(hidden) : text,
      ),
    ),
  );
const currentVariants = () => state.details.results.results.cells;
const visibleVariants = () => currentVariants().filter((cell) => !hiddenVariants.has(cell.label));
function overlayInTrain(subjects) {
  if (subjects.length) navigate("Train", { subject: subjects[0], over: subjects.slice(1) });
}

function renderResults() {
  const details = state.details;
  resultsView.empty.hidden = Boolean(details);
  resultsView.whole.hidden = !details;
  if (!details) return;
  if (hiddenVariantsOf !== details.id) {
    hiddenVariantsOf = details.id;
    hiddenVariants = new Set(
      currentVariants()
        .slice(INITIAL_VARIANTS)
        .map((cell) => cell.label),
    );
    setMessage(resultsView.note, "");
    if (resultsView.actions) resultsView.actions.remove();
    resultsView.actions = createActions(details.id, resultsView.note);
    resultsView.title.parentElement.append(resultsView.actions);
  }
  resultsView.whole.dataset.experiment = details.id;
  resultsView.whole.dataset.kind = details.kind;
  resultsView.whole.dataset.state = details.state;
  resultsView.whole.dataset.done = details.statuses.done || 0; // tests wait for this attribute
  const row = experiments.find((each) => each.id === details.id);
  setText(resultsView.title, details.question || details.name);
  renderActions(resultsView.whole, details);
  const activeLines = details.lines
    .filter((line) => line.status === "training")
    .map(
      (line) =>
        (currentVariants().find((cell) => cell.label === line.cell) || { short: line.cell }).short +
        ", seed " +
        line.seed +
        " at step " +
        line.step.toLocaleString("en") +
        " of " +
        line.steps.toLocaleString("en"),
    );
  const left =
    details.state === "done"
      ? ""
      : activeLines.length
        ? " · " +
          activeLines.slice(0, 2).join("; ") +
          (activeLines.length > 2 ? "; and " + (activeLines.length - 2) + " more" : "")
        : "";
  setText(
    resultsView.words,
    formatMessage(describeStatus(details)).slice(0, -1) +
      left +
      (details.state === "running" && details.estimate.seconds
        ? " · " + formatEstimate(details.estimate) + " left"
        : "") +
      (details.message ? ". " + formatMessage(details.message) : ""),
  ).classList.toggle("error", Boolean(details.message));
  resultsView.bar.firstChild.style.width = 100 * (row ? row.share : 0) + "%";
  resultsView.bar.style.visibility = details.state === "done" ? "hidden" : "";
  const lengths = details.results.lengths;
  setText(resultsView.summary, lengths ? lengths.summary : details.results.results.summary);
  setText(resultsView.also, lengths ? details.results.results.summary : "").hidden = !lengths;
  renderLegend();
  renderTable();
  renderUntrainedNote();
  renderRuns();
  renderCharts();
}
function renderLegend() {
  syncRows(
    resultsView.legend,
    currentVariants(),
    (cell) => cell.label,
    (cell) => {
      const button = el(
        "button",
        { type: "button" },
        el("canvas"),
        el("span", { textContent: cell.short }),
      );
      button.title = cell.label + ": show or hide its line";
      button.addEventListener("click", () => {
        if (hiddenVariants.has(cell.label)) hiddenVariants.delete(cell.label);
        else hiddenVariants.add(cell.label);
        renderLegend();
        renderCharts();
      });
      return button;
    },
    (button, cell) => {
      button.setAttribute("aria-pressed", String(!hiddenVariants.has(cell.label)));
      setText(button.lastChild, cell.short);
    },
  );
}

// ---------------------------------------------------------------- charts
function renderCharts() {
  if (!state.details || !resultsView.score.canvas.clientWidth) return;
  const { results, lengths } = state.details.results,
    cells = results.cells,
    on = cells
      .map((cell, place) => [cell, place])
      .filter(([cell]) => !hiddenVariants.has(cell.label));
  [...resultsView.legend.children].forEach((button, i) => paintSwatch(button.firstChild, i));
  [...resultsView.body.children].forEach((row, i) => paintSwatch(row.querySelector("canvas"), i));
  const finished = on.some(([cell]) => cell.n),
    maxValue = Math.max(1, ...cells.map((cell) => cell.steps)),
    over = results.cells.some((cell) => cell.n > 1)
      ? "the line is the median over seeds, the band the full range"
      : "one seed each";
  const line = (cell, place, curve) => ({
    label: cell.short,
    place,
    xs: curve.steps,
    median: curve.median,
    low: curve.low,
    high: curve.high,
  });
  const rest = finished
    ? formatMessage(over) + " Hover over the chart or use the arrow keys to read values."
    : "The curves appear after the first finished run; Train, below, shows a run live.";
  const steps = {
    x: [0, maxValue],
    marks: [
      [0, "0"],
      [maxValue, "step " + maxValue.toLocaleString("en")],
    ],
    what: "Step",
    rest,
  };
  lineChart(resultsView.score.canvas, {
    ...steps,
    series: on.map(([cell, place]) => line(cell, place, cell.curve)),
    y: [0, 1.02],
    ticks: [
      [0, "0"],
      [0.5, "50 %"],
      [0.99, "99 %"],
    ],
    write: formatShare,
    caption: resultsView.score.caption,
    title: resultsView.score.title,
  });
  const losses = on.map(([cell, place]) => line(cell, place, cell.loss)),
    all = losses
      .flatMap((each) => [...each.low, ...each.high])
      .map((v) => Math.log10(Math.max(v, 1e-9)));
  const low = Math.floor(Math.min(-1, ...all)),
    high = Math.max(0.6, ...all) + 0.05,
    ticks = [];
  for (let e = low; e <= high; e++)
    ticks.push([10 ** e, e < -3 ? "1e" + e : String(+(10 ** e).toPrecision(1))]);
  lineChart(resultsView.loss.canvas, {
    ...steps,
    series: losses,
    y: [low, high],
    log: true,
    ticks,
    write: formatNumber,
    caption: resultsView.loss.caption,
    title: resultsView.loss.title,
  });
  resultsView.byLength.box.parentElement.hidden = !lengths;
  if (!lengths) return;
  const placeOf = (at) => cells[at].label,
    rows = lengths.rows
      .map((row, at) => [row, at])
      .filter(([, at]) => !hiddenVariants.has(placeOf(at)));
  const hasScores = rows.some(([row]) => row.n),
    first = lengths.trained[0],
    series = rows.map(([row, place]) => schemeSeries(row, place));
  const marks = [[1, "length 1"]];
  for (let v = 10; v < lengths.max_length * 0.86; v += lengths.max_length > 60 ? 50 : 10)
    marks.push([v, String(v)]);
  const single = lengths.rows.some((row) => row.n === 1),
    how =
      "Up to " +
      pluralize(lengths.n_requested, "held-out sequence") +
      " of each length; " +
      (single
        ? "bands are 95 % intervals for a single seed, otherwise the full range over seeds."
        : "the line is the median over seeds, the band the full range.") +
      " Shaded: training lengths.";
  lineChart(resultsView.byLength.canvas, {
    series,
    x: [1, Math.max(2, lengths.max_length)],
    y: [0, 1.02],
    ticks: [
      [0, "0"],
      [0.25, "25 %"],
      [0.5, "50 %"],
      [0.75, "75 %"],
      [1, "100 %"],
    ],
    marks: [...marks, [lengths.max_length, String(lengths.max_length)]],
    what: "Length",
    write: formatShare,
    shaded: [Math.max(1, first), lengths.trained[1]],
    caption: resultsView.byLength.caption,
    rest: hasScores
      ? how
      : "The lines appear after a run is finished and evaluated at all lengths.",
    title: resultsView.byLength.title,
  });
  const every = Array.from({ length: lengths.max_length }, (_, i) => i + 1);
  heatmapChart(resultsView.heat.canvas, {
    rows: rows.map(([row]) => ({
      label: row.label,
      n: row.n,
      by: Object.fromEntries(row.lengths.map((length, k) => [length, row.median[k]])),
    })),
    lengths: every,
    trained: lengths.trained[1],
    caption: resultsView.heat.caption,
    title: resultsView.heat.title,
    rest:
      (document.body.classList.contains("dark")
        ? "Dark is 0, bright is 100 %."
        : "White is 0, dark is 100 %.") +
      " Hatched: not evaluated, or no held-out sequences. The line marks the longest " +
      "training length.",
  });
}
// The line of one scheme: the median with the range over seeds, or a single seed with its 95 %
// interval.
function schemeSeries(row, place) {
  const line = {
    label: row.label,
    place,
    xs: row.lengths,
    median: row.median,
    low: row.low,
    high: row.high,
  };
  if (row.n !== 1) return line;
  const scores = row.runs
    .find((run) => run.scores.length)
    .scores.filter((each) => each.exact_match !== null);
  return {
    ...line,
    bandXs: scores.map((each) => each.length),
    low: scores.map((each) => each.low),
    high: scores.map((each) => each.high),
  };
}

// ---------------------------------------------------------------- the table
function renderTable() {
  const { results, lengths } = state.details.results,
    kind = lengths ? "lengths" : "grid";
  if (resultsView.head.dataset.kind !== kind) {
    resultsView.head.dataset.kind = kind;
    resultsView.head.replaceChildren(
      createHeadRow([
        ["", "", "", "settings"],
        ...(lengths
          ? [
              [
                "99 % to length",
                "number",
                "The largest length up to which exact match is at least 99 % at every " +
                  "length: median and range over seeds",
              ],
              [
                "longer lengths",
                "number",
                "Mean exact match over lengths that were not in training: median over seeds",
              ],
            ]
          : []),
        [
          "exact match",
          "number",
          "On held-out sequences at the end of the run: median and range over seeds",
        ],
        [
          "steps to 99 %",
          "number",
          "The first evaluation with at least 99 % exact match: median and range over " +
            "seeds, and the number of finished runs that reached it",
        ],
        [
          "seconds",
          "number",
          "Training time: median and range over seeds; depends on the load of the machine",
        ],
        ["actions", ""],
      ]),
    );
  }
  const columns = [
    "who",
    ...(lengths ? ["reach", "beyond"] : []),
    "exact",
    "steps",
    "seconds",
    "links",
  ];
  syncRows(
    resultsView.body,
    results.cells,
    (cell) => kind + cell.label,
    (cell) => {
      const row = el(
        "tr",
        {},
        ...columns.map((name) =>
          el("td", { className: name + (name === "who" || name === "links" ? "" : " number") }),
        ),
      );
      [...row.cells].forEach((box, at) => {
        const name = resultsView.head.rows[0].cells[at];
        box.dataset.label = name.querySelector(".unseen") ? "" : name.textContent;
      }); // the label before the value in a narrow layout
      row
        .querySelector(".who")
        .append(
          el(
            "div",
            {},
            el("canvas"),
            el("span", { className: "name" }),
            el("span", { className: "what" }),
          ),
        );
      row.querySelector(".steps").append(el("span"), el("span", { className: "what" }));
      const button = (text, title, act) => {
        const made = el("button", { type: "button", className: "quiet", textContent: text, title });
        made.addEventListener("click", act);
        return made;
      };
      const runsOf = () =>
        currentVariants()
          .find((each) => each.label === cell.label)
          .seeds.filter((run) => run.run)
          .map((run) => run.run);
      row.querySelector(".links").append(
        button("Train", "Overlay its seeds in the Train tab", () => overlayInTrain(runsOf())),
        " ",
        button("Inspect", "Open its first seed in the Inspect tab", () => {
          const [first] = runsOf();
          if (first) navigate("Inspect", { subject: first, step: null });
        }),
      );
      return row;
    },
    (row, cell) => {
      const set = (name, text, title = "") => {
          const box = row.querySelector("td." + name);
          setText(box, text);
          box.title = title;
        },
        scheme = lengths && lengths.rows[results.cells.indexOf(cell)],
        to = cell.steps_to,
        stepsBox = row.querySelector("td.steps");
      setText(row.querySelector(".name"), cell.short).title = cell.label;
      setText(
        row.querySelector(".what"),
        (cell.n < cell.planned
          ? cell.n + " of " + pluralize(cell.planned, "run") + " done"
          : pluralize(cell.n, "run")) +
          (cell.diverged ? ", " + cell.diverged + " diverged" : "") +
          (cell.changed ? ", " + cell.changed + " excluded: settings changed during training" : ""),
      );
      set("exact", cell.exact_match ? formatRange(cell.exact_match, formatShare) : "–");
      const count = (v) => (v === null ? "…" : Math.round(v).toLocaleString("en"));
      const reached = to ? "reached by " + to.reached + " of " + to.n : "";
      setText(stepsBox.lastChild, reached);
      stepsBox.title =
        to && to.high === null && to.median !== null ? "…: some seeds did not reach it" : "";
      setText(
        stepsBox.firstChild,
        !to
          ? "–"
          : to.median === null
            ? "not within " + cell.steps.toLocaleString("en")
            : formatRange(to, count),
      );
      set("seconds", cell.seconds ? formatRange(cell.seconds, formatNumber) : "–");
      if (scheme) {
        set(
          "reach",
          scheme.reach ? formatRange(scheme.reach, (v) => String(+v.toPrecision(3))) : "–",
        );
        set("beyond", scheme.beyond ? formatRange(scheme.beyond, formatShare) : "–");
      }
      for (const button of row.querySelectorAll(".links button"))
        button.disabled = !cell.seeds.some((run) => run.run);
    },
  );
}
function renderUntrainedNote() {
  const { lengths } = state.details.results,
    all = lengths ? lengths.rows.filter((row) => row.untrained) : [];
  const rowsOf = (row) =>
    Object.entries(row.untrained)
      .map(([side, [first, last]]) => (side === "row" ? "" : side + " ") + first + " to " + last)
      .join(", ");
  const tables = all.map((row) => row.label + ", " + rowsOf(row)).join("; ");
  setText(
    resultsView.untrained,
    all.length
      ? "Untrained positions, counted from 0: " +
          tables +
          ". Longer sequences use the initial values there."
      : "",
  ).hidden = !all.length;
}
function renderRuns() {
  const { lines } = state.details;
  setText(resultsView.runsWords, "All runs (" + lines.length + ")");
  syncRows(
    resultsView.runsBody,
    lines,
    (line) => line.cell + "/" + line.seed,
    () => {
      const row = el(
        "tr",
        {},
        el("td", { className: "who" }),
        el("td", { className: "number" }),
        el("td", { className: "how" }),
        el("td", { className: "links" }),
      );
      const button = (text, act) => {
        const made = el("button", { type: "button", className: "quiet", textContent: text });
        made.addEventListener("click", act);
        return made;
      };
      row.querySelector(".links").append(
        button("Train", () => navigate("Train", row.dataset.run)),
        " ",
        button("Inspect", () => navigate("Inspect", { subject: row.dataset.run, step: null })),
      );
      return row;
    },
    (row, line) => {
      row.dataset.run = line.run || "";
      row.dataset.status = line.status;
      setText(row.cells[0], line.cell);
      setText(row.cells[1], String(line.seed));
      const how =
        line.status === "planned"
          ? "not started"
          : line.queue_position
            ? formatQueuePosition(line.queue_position)
            : line.status +
              (line.step
                ? ", step " +
                  line.step.toLocaleString("en") +
                  (line.step < line.steps ? " of " + line.steps.toLocaleString("en") : "")
                : "");
      setText(row.cells[2], how + (line.message ? ": " + line.message : "")).classList.toggle(
        "error",
        line.status === "failed",
      );
      for (const button of row.querySelectorAll("button")) button.disabled = !line.run;
    },
  );
}

// ---------------------------------------------------------------- files
const fileName = (kind) =>
  (state.details.name.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "experiment") +
  "." +
  kind;
async function exportCsv() {
  const name = fileName("csv"),
    reply = await requestExperiments("experiments/csv", { experiment: state.details.id });
  setMessage(resultsView.note, addPeriod(reply.error || ""), "error");
  if (!reply.error) downloadBlob(name, new Blob([reply.csv], { type: "text/csv" }));
}
async function exportFigures() {
  if (isExporting) return;
  isExporting = true;
  const name = fileName("zip"),
    button = resultsView.files.querySelector(".as-figures");
  button.disabled = true;
  setText(button, "Drawing");
  const reply = await requestExperiments(
    "experiments/figures",
    { experiment: state.details.id },
    150000,
  );
  isExporting = false;
  button.disabled = false;
  setText(button, "Figures");
  setMessage(resultsView.note, addPeriod(reply.error || ""), "error");
  if (!reply.error)
    downloadBlob(
      name,
      new Blob([Uint8Array.from(atob(reply.zip), (one) => one.charCodeAt(0))], {
        type: "application/zip",
      }),
    );
}
