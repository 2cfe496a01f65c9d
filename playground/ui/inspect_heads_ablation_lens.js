// ---------------------------------------------------------------- head roles, ablation, logit lens
// Measurements on hundreds of held-out sequences are slow and do not depend on the user's sequence.
// These views request the answer to that sequence quickly, and cache the measurements by model and
// step.
const slowResults = new Map(); // cache key -> { data, error, busy, of }
const cacheKey = (view, options) =>
  JSON.stringify([
    state.subject,
    view === "heads-over-training" ? null : state.step,
    view,
    options,
  ]);
// Request a measurement once. `of` is the answer that is displayed at the time of the request. The
// previous result stays until a newer one arrives.
async function loadSlowView(view, options, viewToRedraw, displayedResult) {
  const key = cacheKey(view, options),
    cached = slowResults.get(key);
  if (cached && cached.busy) return;
  slowResults.set(key, { ...cached, busy: true, error: "", of: displayedResult });
  redrawView(viewToRedraw);
  const data = await requestView(view, options);
  slowResults.set(
    key,
    data.error
      ? { ...cached, busy: false, error: data.error, of: displayedResult }
      : { data, of: displayedResult },
  );
  redrawView(viewToRedraw);
}
const describeSample = (data) =>
  "over " +
  pluralize(data.sequences, "held-out sequence") +
  " of " +
  (data.lengths[0] === data.lengths[1]
    ? pluralize(data.lengths[0], "token")
    : data.lengths.join(" to ") + " tokens");
const shortHeadName = (head) => head.kind + " " + head.layer + "." + head.head;
const formatWithMinusSign = (x) => formatNumber(x).replace("-", "−");
const formatSigned = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + formatNumber(Math.abs(x));
// Shade a cell so that its number stays readable.
function shadeCell(cell, share) {
  const thousandths = Math.round(1000 * Math.max(0, Math.min(1, share)));
  cell.style.setProperty("background-color", scaleColor(thousandths), "important");
  // Use the text colour with the higher contrast (relative luminance and contrast of WCAG 2).
  const light = colorTable()[thousandths].map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  cell.style.color = 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
}
// A bar from zero to `value` on an axis from `low` to `high`.
function signedBar(value, low, high, className) {
  const bar = el("div", { className: className + " bar" + (value < 0 ? " below" : "") }),
    span = high - low || 1;
  bar.style.left = (100 * (Math.min(0, value) - low)) / span + "%";
  bar.style.width = (100 * Math.abs(value)) / span + "%";
  const axis = el("div", { className: className + "-axis" }, bar);
  axis.style.setProperty("--zero", (100 * (0 - low)) / span + "%");
  return axis;
}

// ---------------------------------------------------------------- head roles
const PATTERNS = ["diagonal", "anti-diagonal", "previous", "next", "first", "last", "uniform"];
const PATTERN_DESCRIPTIONS = {
  diagonal: "position i attends to position i",
  "anti-diagonal": "position i attends to position i counted from the end",
  previous: "position i attends to i − 1",
  next: "position i attends to i + 1",
  first: "every position attends to the first",
  last: "every position attends to EOS, the end of the source",
  uniform:
    "every position attends equally to all positions; the overlap of a uniform row with this one",
};
// Colours after Okabe and Ito; dashes distinguish the lines as well. The selected pattern uses the
// accent colour.
const PATTERN_STYLES = {
  diagonal: ["#d98200", "#ffb000", []],
  "anti-diagonal": ["#00795a", "#2fd6a5", []],
  previous: ["#b8478c", "#f08fc4", [6, 3]],
  next: ["#c0392b", "#ff7b61", [2, 2]],
  first: ["#7a5c00", "#d9c34a", [6, 3]],
  last: ["#5b3fc4", "#b7a4ff", [2, 2]],
  uniform: ["#6b7280", "#c3c8d1", []],
  aligned: ["#16181d", "#f2f4f7", [1, 3]],
};
const HEAD_COLUMNS = [
  ["name", "head", "attention type, layer.head"],
  ...PATTERNS.map((name) => [
    name,
    name,
    "Fraction of the attention weights: " + PATTERN_DESCRIPTIONS[name],
  ]),
  [
    "entropy",
    "entropy",
    "Entropy of the weights of a row, in nats; 0 means that all weight is on one position",
  ],
  [
    "aligned",
    "aligned",
    "Fraction of the attention on the source token that determines this target token",
  ],
  [
    "distance",
    "distance",
    "Mean distance of the attention from that token, in positions (earth mover's distance)",
  ],
  ["description", "role", "Description of the pattern with the largest fraction of the attention"],
];
const headScoresState = {
  sort: "name",
  down: false,
  kind: "all",
  head: null,
  pattern: null,
  at: null,
  last: null,
  timer: null,
};
const columnValue = (head, column) =>
  PATTERNS.includes(column) ? head.patterns[column] : column === "name" ? 0 : head[column];

VIEWS.heads = {
  title: "Head roles",
  explain:
    "Fraction of each head's attention on named patterns, measured on held-out sequences. " +
    "The tick in a cell is the baseline of a uniform row.",
  request: "away-answer",
  build(box) {
    const head = el("tr");
    for (const [name, text, title] of HEAD_COLUMNS) {
      const button = el("button", { type: "button", textContent: text, title });
      button.addEventListener("click", () => {
        headScoresState.down =
          headScoresState.sort === name
            ? !headScoresState.down
            : !["name", "description", "distance", "entropy"].includes(name);
        headScoresState.sort = name;
        redrawView("heads");
      });
      head.append(
        el(
          "th",
          {
            scope: "col",
            className:
              name === "description" || name === "name"
                ? ""
                : PATTERNS.includes(name)
                  ? "heads-middle"
                  : "heads-number",
          },
          button,
        ),
      );
      head.lastChild.dataset.column = name;
    }
    const pattern = el(
      "select",
      { className: "heads-pattern", ariaLabel: "Pattern" },
      ...PATTERNS.map((name) => new Option(name)),
    );
    pattern.addEventListener("change", () => {
      headScoresState.pattern = pattern.value;
      redrawView("heads");
    });
    const measure = el("button", {
      type: "button",
      className: "quiet heads-measure",
      textContent: "Measure over training",
      title: "The same scores at up to 24 steps with stored weights; takes some seconds",
    });
    measure.addEventListener("click", () =>
      loadSlowView("heads-over-training", {}, "heads", resultByView.heads),
    );
    box.append(
      el(
        "div",
        { className: "row" },
        createSegmentedControl(
          [
            ["all", "all"],
            ["cross", "cross"],
            ["encoder", "encoder"],
            ["decoder", "decoder"],
          ],
          headScoresState.kind,
          (value) => {
            headScoresState.kind = value;
            redrawView("heads");
          },
          "Kind of attention",
        ),
        el("span", { className: "hint heads-words" }),
      ),
      el(
        "div",
        { className: "heads-scroll" },
        el("table", { className: "heads-table picture" }, el("thead", {}, head), el("tbody")),
      ),
      el(
        "div",
        { className: "row heads-when" },
        el("h4", { textContent: "Scores over training" }),
        measure,
        el("span", { className: "hint heads-over-words" }),
      ),
      el(
        "div",
        { className: "heads-two", hidden: true },
        el(
          "div",
          {},
          el("h4", { className: "heads-chart-title" }),
          el("canvas", { className: "heads-chart picture", tabIndex: 0 }),
          el("p", { className: "heads-legend" }),
          el("p", { className: "caption heads-chart-words" }),
        ),
        el(
          "div",
          {},
          el("h4", {}, "All heads: fraction on ", pattern),
          el("canvas", { className: "heads-map picture" }),
          el("p", { className: "caption heads-map-words" }),
        ),
      ),
    );
    const canvas = box.querySelector(".heads-chart");
    canvas.setAttribute("role", "img");
    const at = (place) => {
      headScoresState.at = place;
      renderHeadHistory();
    };
    canvas.addEventListener("pointermove", (event) =>
      at(canvas.nearest ? canvas.nearest(event.offsetX) : null),
    );
    canvas.addEventListener("pointerleave", () => at(null));
    canvas.addEventListener("blur", () => at(null));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        over = headHistory();
      if (!by || !over) return;
      event.preventDefault();
      event.stopPropagation();
      at(
        Math.max(
          0,
          Math.min(
            over.steps.length - 1,
            headScoresState.at === null
              ? by > 0
                ? 0
                : over.steps.length - 1
              : headScoresState.at + by,
          ),
        ),
      );
    });
  },
  draw(own) {
    const result = slowResults.get(cacheKey("heads", {}));
    // In a training run, a later step causes a new request; the current result stays until then.
    // Dragging the slider causes one request, at the step where it stops.
    if (
      !result ||
      (!result.busy && result.of !== own && (result.error || result.data.step < own.step))
    ) {
      clearTimeout(headScoresState.timer);
      const key = cacheKey("heads", {});
      headScoresState.timer = setTimeout(
        () => {
          if (key === cacheKey("heads", {})) loadSlowView("heads", {}, "heads", own);
        },
        result || headScoresState.last ? 250 : 0,
      );
    }
    const data = (result && result.data) || headScoresState.last,
      stale = !result || !result.data;
    const words = queryView("heads", ".heads-words");
    words.classList.toggle("heads-error", Boolean(result && result.error));
    words.textContent =
      result && result.error
        ? formatMessage(result.error)
        : stale
          ? "Measuring."
          : formatMessage(describeSample(data) + ", teacher-forced");
    queryView("heads", ".heads-table").classList.toggle("heads-stale", stale);
    if (!data) return;
    headScoresState.last = data;
    if (!data.heads.some((head) => head.name === headScoresState.head))
      headScoresState.head = data.heads.reduce((best, head) =>
        (head.aligned || 0) > (best.aligned || 0) ? head : best,
      ).name;
    renderHeadScores(data);
    const over = slowResults.get(cacheKey("heads-over-training", {})),
      hasHistory = /^(run|watch):/.test(state.subject) && weightSteps.length > 1;
    queryView("heads", ".heads-measure").disabled = !hasHistory || Boolean(over && over.busy);
    queryView("heads", ".heads-over-words").textContent = !hasHistory
      ? "Only runs store the weights of earlier steps. Train a run and open it here."
      : !over
        ? ""
        : over.busy
          ? "Measuring."
          : over.error
            ? formatMessage(over.error)
            : formatMessage(
                pluralize(over.data.steps.length, "step") +
                  " of " +
                  over.data.n_steps.toLocaleString("en") +
                  " stored, " +
                  describeSample(over.data),
              );
    queryView("heads", ".heads-two").hidden = !headHistory();
    renderHeadHistory();
  },
  options: () => ({
    kind: headScoresState.kind,
    sort: headScoresState.sort,
    down: headScoresState.down,
    head: headScoresState.head,
  }),
  take(options) {
    if (["all", "cross", "encoder", "decoder"].includes(options.kind)) {
      headScoresState.kind = options.kind;
      setPressed(queryView("heads", ".choice"), options.kind);
    }
    if (HEAD_COLUMNS.some(([name]) => name === options.sort)) {
      headScoresState.sort = options.sort;
      headScoresState.down = options.down === true;
    }
    if (typeof options.head === "string") headScoresState.head = options.head;
  },
  forget() {
    headScoresState.last = null;
    headScoresState.head = null;
    headScoresState.pattern = null;
  },
  unpacked: () => ({ ...headScoresState.last, over_training: headHistory() }),
  rows: () => [
    ...(headScoresState.last
      ? headScoresState.last.heads.map((head) =>
          toScoreRow(
            headScoresState.last.step,
            head,
            (values) => values,
            head.aligned,
            head.entropy,
            {
              distance: head.distance,
              pattern: head.description,
            },
          ),
        )
      : []),
    ...(headHistory()
      ? headHistory().steps.flatMap((step, i) =>
          headHistory().heads.map((head) =>
            toScoreRow(
              step,
              head,
              (values) => values && values[i],
              head.aligned[i],
              head.entropy[i],
              {},
            ),
          ),
        )
      : []),
  ],
};
const toScoreRow = (step, head, of, aligned, entropy, more) => ({
  step,
  kind: head.kind,
  layer: head.layer,
  head: head.head,
  ...Object.fromEntries(PATTERNS.map((name) => [name, of(head.patterns[name])])),
  entropy,
  aligned,
  ...more,
});
function headHistory() {
  const over = slowResults.get(cacheKey("heads-over-training", {}));
  return over && over.data;
}

function renderHeadScores(data) {
  const rows = data.heads.filter(
    (head) => headScoresState.kind === "all" || head.kind === headScoresState.kind,
  );
  if (headScoresState.sort === "description")
    rows.sort((a, b) => a.description.localeCompare(b.description));
  else if (headScoresState.sort !== "name")
    rows.sort(
      (a, b) =>
        (columnValue(a, headScoresState.sort) ?? Infinity) -
        (columnValue(b, headScoresState.sort) ?? Infinity),
    );
  if (headScoresState.down) rows.reverse();
  if (headScoresState.down)
    // missing values come last in both orders
    rows.sort(
      (a, b) =>
        (columnValue(a, headScoresState.sort) === null) -
        (columnValue(b, headScoresState.sort) === null),
    );
  for (const th of VIEWS.heads.box.querySelectorAll(".heads-table th")) {
    if (th.dataset.column === headScoresState.sort)
      th.setAttribute("aria-sort", headScoresState.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  const over = describeSample(data),
    focused = document.activeElement && document.activeElement.dataset.head;
  queryView("heads", ".heads-table tbody").replaceChildren(
    ...rows.map((head) => {
      const button = el("button", {
        type: "button",
        textContent: shortHeadName(head),
        title: head.name,
      });
      button.dataset.head = head.name;
      button.setAttribute("aria-pressed", String(head.name === headScoresState.head));
      const row = el(
        "tr",
        { className: head.name === headScoresState.head ? "heads-chosen" : "" },
        el("td", {}, button),
      );
      row.addEventListener("click", () => {
        headScoresState.head = head.name;
        headScoresState.pattern = null;
        redrawView("heads");
      });
      for (const name of PATTERNS) {
        const share = head.patterns[name],
          chance = head.chance[name],
          cell = el("td", { className: "heads-share" });
        if (share === null) {
          cell.classList.add("heads-never");
          cell.title = "Not possible for this attention type";
          row.append(cell);
          continue;
        }
        cell.textContent = share.toFixed(2);
        if (name !== "uniform") shadeCell(cell, share); // not a fraction of the attention
        if (name === head.best) cell.classList.add("heads-best");
        if (chance !== null) {
          cell.classList.add("heads-chance");
          cell.style.setProperty("--chance", 100 * chance + "%");
        }
        cell.title =
          head.name +
          ": " +
          (name === "uniform"
            ? formatNumber(share) +
              " overlap with a uniform row" +
              (chance === null
                ? ""
                : "; a row with all weight on one position has " + formatNumber(chance))
            : formatNumber(share) +
              " of its attention is on the pattern: " +
              PATTERN_DESCRIPTIONS[name] +
              (chance === null ? "" : "; uniform baseline " + formatNumber(chance))) +
          "; mean over all rows, " +
          over;
        row.append(cell);
      }
      const addCell = (value, title) =>
        el("td", {
          className: "heads-number",
          textContent: value === null ? "" : value.toFixed(2),
          title:
            value === null
              ? "Available only for tasks with a result source token for each target token"
              : title + ", " + over,
        });
      row.append(
        addCell(
          head.entropy,
          formatNumber(head.entropy) + " nats; a uniform row has " + formatNumber(head.max_entropy),
        ),
        addCell(head.aligned, "Fraction of the attention on the aligned source token"),
        addCell(head.distance, "Distance from the aligned source token, in positions"),
      );
      row.append(el("td", { className: "heads-description", textContent: head.description }));
      return row;
    }),
  );
  if (focused) {
    const again = VIEWS.heads.box.querySelector(`[data-head="${CSS.escape(focused)}"]`);
    if (again) again.focus();
  }
}

// The scores of one head over training, on a log scale because most changes happen early, and the
// scores of all heads on one pattern.
function renderHeadHistory() {
  const history = headHistory(),
    canvas = queryView("heads", ".heads-chart");
  if (!history || !canvas.offsetParent) return;
  const head = history.heads.find((each) => each.name === headScoresState.head) || history.heads[0],
    n = history.steps.length - 1,
    current =
      headScoresState.last && headScoresState.last.heads.find((each) => each.name === head.name);
  const series = [
    ...PATTERNS.map((name) => [name, head.patterns[name]]),
    ["aligned", head.aligned],
  ].filter(([, values]) => values.every((value) => value !== null));
  const best = headScoresState.pattern || (current && current.best) || "anti-diagonal";
  const [c, width, height] = setUpCanvas(canvas, 220),
    left = 40,
    right = width - 10,
    top = 10,
    bottom = height - 24,
    dark = document.body.classList.contains("dark");
  const low = Math.log(1 + history.steps[0]),
    high = Math.log(1 + history.steps[n]),
    x = (step) => left + ((right - left) * (Math.log(1 + step) - low)) / (high - low || 1),
    y = (share) => bottom - (bottom - top) * share;
  canvas.nearest = (px) =>
    history.steps.reduce(
      (near, step, i) =>
        Math.abs(x(step) - px) < Math.abs(x(history.steps[near]) - px) ? i : near,
      0,
    );
  c.font = "12px " + cssVariable("--font");
  c.lineWidth = 1;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    c.strokeStyle = cssVariable("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(share)) + 0.5);
    c.lineTo(right, Math.round(y(share)) + 0.5);
    c.stroke();
    c.fillStyle = cssVariable("--pg-quiet-text");
    if (share % 0.5 === 0) c.fillText(String(share), left - 6, y(share));
  }
  c.textBaseline = "alphabetic";
  let free = -Infinity;
  history.steps.forEach((step, i) => {
    const text = step.toLocaleString("en"),
      wide = c.measureText(text).width,
      at = Math.max(left, Math.min(right - wide, x(step) - wide / 2));
    if (
      at < free ||
      (i < n && at + wide + 8 > right - c.measureText(history.steps[n].toLocaleString("en")).width)
    )
      return;
    c.textAlign = "left";
    c.fillText(text, at, height - 6);
    free = at + wide + 12;
  });
  const chance = head.chance[best];
  const hasChance = chance !== null && chance !== undefined;
  if (hasChance) {
    c.strokeStyle = cssVariable("--pg-quiet");
    c.setLineDash([3, 4]);
    c.beginPath();
    c.moveTo(left, y(chance));
    c.lineTo(right, y(chance));
    c.stroke();
    c.setLineDash([]);
  }
  const color = (name) =>
    name === best ? cssVariable("--pg-accent") : PATTERN_STYLES[name][dark ? 1 : 0];
  for (const [name, values] of [...series].sort(([a], [b]) => (a === best) - (b === best))) {
    c.strokeStyle = c.fillStyle = color(name);
    c.lineWidth = name === best ? 2.6 : 1.4;
    c.lineJoin = "round";
    c.setLineDash(name === best ? [] : PATTERN_STYLES[name][2]);
    c.beginPath();
    values.forEach((value, i) =>
      i ? c.lineTo(x(history.steps[i]), y(value)) : c.moveTo(x(history.steps[i]), y(value)),
    );
    c.stroke();
    c.setLineDash([]);
    if (name === best)
      values.forEach((value, i) => {
        c.beginPath();
        c.arc(x(history.steps[i]), y(value), 2.2, 0, 7);
        c.fill();
      });
  }
  if (hasChance) {
    const text = best === "uniform" ? "a single position" : "uniform baseline of " + best;
    c.textAlign = "left";
    c.lineWidth = 4;
    c.strokeStyle = cssVariable("--body-background-fill");
    c.strokeText(text, left + 4, y(chance) - 5);
    c.fillStyle = cssVariable("--pg-quiet-text");
    c.fillText(text, left + 4, y(chance) - 5);
  }
  for (const [step, mark] of [
    [state.step, "--pg-accent"],
    [headScoresState.at === null ? null : history.steps[headScoresState.at], "--pg-mark"],
  ]) {
    if (step === null || step === undefined || step < history.steps[0] || step > history.steps[n])
      continue;
    c.strokeStyle = cssVariable(mark);
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(step)) + 0.5, top);
    c.lineTo(Math.round(x(step)) + 0.5, bottom);
    c.stroke();
  }
  const at = headScoresState.at === null ? n : headScoresState.at;
  queryView("heads", ".heads-chart-title").textContent =
    head.name[0].toUpperCase() + head.name.slice(1) + ": scores by step (log)";
  queryView("heads", ".heads-legend").replaceChildren(
    ...series.map(([name, values]) => {
      const line = el("i"),
        item = el(
          "span",
          {
            className: name === best ? "heads-lead" : "",
            title:
              name === "aligned"
                ? "Share of the attention on the source symbol that the task points to"
                : PATTERN_DESCRIPTIONS[name],
          },
          line,
          name + " " + values[at].toFixed(2),
        );
      line.style.borderTop =
        (name === best
          ? "3px solid "
          : PATTERN_STYLES[name][2].length
            ? "2px dashed "
            : "2px solid ") + color(name);
      return item;
    }),
  );
  const bestSeries = (series.find(([name]) => name === best) || [])[1],
    half = bestSeries
      ? history.steps[bestSeries.findIndex((value) => value >= (bestSeries[0] + bestSeries[n]) / 2)]
      : null;
  const growthNote =
    bestSeries && bestSeries[n] - bestSeries[0] > 0.1
      ? " It reached half of its present score on " +
        best +
        " at step " +
        half.toLocaleString("en") +
        "."
      : "";
  const words =
    headScoresState.at === null
      ? "Vertical axis: fraction of the attention, 0 to 1. Horizontal axis: step." + growthNote
      : "Step " +
        history.steps[at].toLocaleString("en") +
        ": entropy " +
        formatNumber(head.entropy[at]) +
        " nats; the legend shows the fractions.";
  queryView("heads", ".heads-chart-words").textContent = words;
  canvas.setAttribute("aria-label", head.name + ", scores by step. " + words);

  queryView("heads", ".heads-pattern").value = best;
  const visibleHeads = history.heads.filter(
      (each) => headScoresState.kind === "all" || each.kind === headScoresState.kind,
    ),
    caption = queryView("heads", ".heads-map-words");
  caption.dataset.resting =
    "Rows: heads as layer.head. Columns: steps. Click a row to select its head.";
  mountMatrix(
    queryView("heads", ".heads-map"),
    {
      rows: visibleHeads.map(shortHeadName),
      columns: history.steps.map((step, i) =>
        history.steps[n] > 99 && (n - i) % 2 ? "" : String(step),
      ),
      size: 18,
      weights: visibleHeads.map((each) => each.patterns[best]),
      possible: visibleHeads.map((each) => each.patterns[best].map((value) => value !== null)),
      chosen: visibleHeads.indexOf(head) < 0 ? null : [visibleHeads.indexOf(head), n],
    },
    {
      caption,
      hover: (r, k) =>
        visibleHeads[r].name +
        " at step " +
        history.steps[k].toLocaleString("en") +
        ": " +
        formatNumber(visibleHeads[r].patterns[best][k]) +
        " of its attention on " +
        best +
        ".",
      choose: (r) => {
        headScoresState.head = visibleHeads[r].name;
        redrawView("heads");
      },
    },
  );
}

// ---------------------------------------------------------------- ablation
const ablationState = {
  how: "zero",
  set: "single",
  parts: new Set(),
  position: 0,
  symbol: null,
  patch: null,
  about: "",
  requestId: 0,
  error: "",
};
const ABLATION_MODES = [
  [
    "zero",
    "zero",
    "Zero ablation: the output is replaced by zero, a value that did not occur in training",
  ],
  [
    "mean",
    "mean",
    "Mean ablation: the output is replaced by its mean at that position over the held-out " +
      "sequences, which removes its dependence on the input",
  ],
];
const ABLATION_SETS = [
  [
    "single",
    "single components",
    "Each head, each feed-forward network, and the position vectors, one at a time",
  ],
  ["groups", "groups", "Components of one group, ablated together"],
  ["keep", "keep only", "One head, or a group of heads, is kept; all other heads are ablated"],
];

VIEWS.away = {
  title: "Ablation",
  explain:
    "The effect of replacing a component's output, measured on the same held-out sequences " +
    "before and after. The log-probability of the target shows an effect before accuracy " +
    "changes.",
  request: "away-answer",
  build(box) {
    const measure = el("button", {
      type: "button",
      className: "quiet away-measure",
      textContent: "Measure",
    });
    measure.addEventListener("click", () =>
      loadSlowView(
        "away",
        { how: ablationState.how, set: ablationState.set },
        "away",
        resultByView.away,
      ),
    );
    const none = el("button", {
      type: "button",
      className: "quiet away-none",
      textContent: "Restore all",
    });
    none.addEventListener("click", () => {
      ablationState.parts.clear();
      redrawView("away");
      scheduleRefresh("away", 0);
    });
    const position = el("select", {
        className: "away-position",
        ariaLabel: "Position in the source",
      }),
      symbol = el("select", { className: "away-symbol", ariaLabel: "Replacement token" });
    position.addEventListener("change", () => {
      ablationState.position = +position.value;
      ablationState.symbol = null;
      runPatching();
    });
    symbol.addEventListener("change", () => {
      ablationState.symbol = symbol.value;
      runPatching();
    });
    box.append(
      el(
        "div",
        { className: "away-two" },
        el(
          "div",
          {},
          el(
            "div",
            { className: "row" },
            createSegmentedControl(
              ABLATION_SETS,
              ablationState.set,
              (value) => {
                if ((value === "keep") !== (ablationState.set === "keep"))
                  ablationState.parts.clear();
                ablationState.set = value;
                redrawView("away");
                scheduleRefresh("away", 0);
              },
              "Components to ablate",
            ),
            el(
              "span",
              { className: "away-columns" },
              "replaced with ",
              createSegmentedControl(
                ABLATION_MODES,
                ablationState.how,
                (value) => {
                  ablationState.how = value;
                  redrawView("away");
                  scheduleRefresh("away", 0);
                },
                "Replacement value",
              ),
            ),
            measure,
          ),
          el("p", { className: "hint away-words", role: "status" }),
          el("p", { className: "away-finding" }),
          el(
            "table",
            { className: "away-table picture" },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                el("th", { scope: "col" }, visuallyHidden("Select")),
                el(
                  "th",
                  { scope: "col", className: "away-what" },
                  visuallyHidden("Ablated component"),
                ),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "exact match",
                  title:
                    "Fraction of the held-out sequences with a completely correct answer, " +
                    "before and after",
                }),
                el("th", { scope: "col" }, visuallyHidden("change")),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "drop in nats",
                  title:
                    "Mean drop of the log-probability of the whole target, in nats, over " +
                    "the same sequences",
                }),
                el("th", { scope: "col" }, visuallyHidden("bar chart")),
              ),
            ),
            el("tbody"),
          ),
        ),
        el(
          "div",
          {},
          el("h4", { textContent: "On your sequence" }),
          el("table", { className: "away-own picture" }, el("tbody")),
          el("p", { className: "hint away-own-words" }),
          none,
          el("h4", {
            className: "away-patch-title",
            textContent: "Activation patching",
            title:
              "Meng et al. 2022: the model runs on the corrupted sequence, with the output " +
              "of one head at a time replaced by its output on the clean sequence",
          }),
          el(
            "div",
            { className: "row" },
            el("label", {}, "replace ", position),
            el("label", {}, " with ", symbol),
          ),
          el("p", { className: "hint away-patch-words", role: "status" }),
          el("table", { className: "away-patch picture" }, el("tbody")),
        ),
      ),
    );
  },
  options: () => ({
    how: ablationState.how,
    set: ablationState.set,
    keep: ablationState.set === "keep" && ablationState.parts.size > 0,
    parts: [...ablationState.parts],
  }),
  take(options) {
    if (ABLATION_MODES.some(([name]) => name === options.how)) ablationState.how = options.how;
    if (ABLATION_SETS.some(([name]) => name === options.set)) ablationState.set = options.set;
    if (Array.isArray(options.parts))
      ablationState.parts = new Set(options.parts.filter((name) => typeof name === "string"));
    for (const box of VIEWS.away.box.querySelectorAll(".choice"))
      for (const value of [ablationState.how, ablationState.set])
        if (box.querySelector(`[data-value="${value}"]`)) setPressed(box, value);
  },
  draw(own) {
    const result = slowResults.get(
        cacheKey("away", { how: ablationState.how, set: ablationState.set }),
      ),
      data = result && result.data;
    const words = queryView("away", ".away-words"),
      measure = queryView("away", ".away-measure");
    words.classList.toggle("away-error", Boolean(result && result.error));
    words.textContent = !result
      ? "Not measured yet."
      : result.busy
        ? "Measuring one component at a time."
        : result.error
          ? formatMessage(result.error)
          : "Baseline: exact match " +
            formatPercent(data.before.exact_match) +
            ", log-probability " +
            formatWithMinusSign(data.before.log_probability) +
            " nats, " +
            describeSample(data) +
            (data.fewer ? " (fewer than 512, because of the size of the model)" : "") +
            (data.step === own.step
              ? "."
              : "; measured at step " +
                data.step.toLocaleString("en") +
                ", the model is now at step " +
                own.step.toLocaleString("en") +
                ".");
    measure.disabled = Boolean(result && result.busy);
    measure.textContent = data ? "Measure again" : "Measure";
    queryView("away", ".away-finding").textContent = data ? data.finding : "";
    renderAblation(own, data);
    renderAblationOfInput(own);
    const about = JSON.stringify([state.subject, own.step, own.source]);
    if (about !== ablationState.about) {
      ablationState.about = about;
      runPatching();
    } else renderPatching();
  },
  forget() {
    ablationState.parts.clear();
    ablationState.patch = null;
    ablationState.about = "";
    ablationState.position = 0;
    ablationState.symbol = null;
  },
  unpacked: (own) => ({
    own,
    patching: ablationState.patch,
    measured: ABLATION_SETS.map(([set]) =>
      slowResults.get(cacheKey("away", { how: ablationState.how, set })),
    )
      .filter((result) => result && result.data)
      .map((result) => result.data),
  }),
  rows: (own) =>
    ABLATION_SETS.flatMap(([set]) => {
      const result = slowResults.get(cacheKey("away", { how: ablationState.how, set }));
      return result && result.data
        ? result.data.rows.map((row) => ({
            set,
            how: ablationState.how,
            part: row.name,
            exact_match_before: result.data.before.exact_match,
            exact_match_after: row.exact_match,
            log_probability_before: result.data.before.log_probability,
            log_probability_after: row.log_probability,
            sequences: result.data.sequences,
            step: result.data.step,
          }))
        : [];
    }).concat(
      ablationState.patch
        ? ablationState.patch.heads.map((head) => ({
            set: "patching",
            part: head.name,
            share_recovered: head.recovered,
            step: own.step,
          }))
        : [],
    ),
};

// The ranked components; before a measurement, all components in the order of the model.
function renderAblation(own, data) {
  const body = queryView("away", ".away-table tbody"),
    keep = ablationState.set === "keep";
  const isHead = (name) => name.includes("head ");
  const rows = data
    ? data.rows
    : ablationState.set === "groups"
      ? Object.entries(own.groups).map(([name, parts]) => ({ name, parts }))
      : [
          ...own.parts
            .filter((name) => !keep || isHead(name))
            .map((name) => ({ name, parts: [name] })),
          ...(keep
            ? Object.entries(own.groups)
                .filter(([, parts]) => isHead(parts[0]))
                .map(([name, parts]) => ({ name, parts }))
            : []),
        ];
  queryView("away", ".away-what").textContent = keep ? "kept heads" : "ablated component";
  const signature = JSON.stringify([
    ablationState.set,
    ablationState.how,
    data && data.step,
    rows.map((row) => row.name),
  ]);
  if (body.dataset.signature !== signature) {
    body.dataset.signature = signature;
    const losses = data ? rows.map((row) => data.before.log_probability - row.log_probability) : [],
      maxValue = Math.max(1e-9, ...losses),
      minValue = Math.min(0, ...losses);
    body.replaceChildren(
      ...rows.map((row, i) => {
        const box = el("input", { type: "checkbox" }),
          before = data && data.before;
        box.setAttribute("aria-label", (keep ? "Keep " : "Ablate ") + row.name);
        box.addEventListener("change", () => {
          for (const part of row.parts)
            if (box.checked) ablationState.parts.add(part);
            else ablationState.parts.delete(part);
          updateCheckboxes();
          scheduleRefresh("away", 0);
        });
        const label = el(
          "label",
          {},
          el("span", { className: "away-long", textContent: row.name }),
          el("span", {
            className: "away-short",
            textContent: row.name.replace(
              /^(encoder|decoder|cross)(?: self)?-attention, layer (\d+), head (\d+)$/,
              "$1 $2.$3",
            ),
          }),
        );
        label.addEventListener("click", () => box.click());
        const line = el("tr", {}, el("td", {}, box), el("td", { className: "away-name" }, label));
        box.parts = row.parts;
        if (!data) return line;
        const bar = el("div", { className: "away-exact bar" }),
          axis = el("div", { className: "away-exact-axis" }, bar);
        bar.style.width = 100 * row.exact_match + "%";
        axis.style.setProperty("--before", 100 * before.exact_match + "%");
        axis.title =
          formatPercent(before.exact_match) +
          " before, " +
          formatPercent(row.exact_match) +
          " after, " +
          describeSample(data);
        const lost = signedBar(losses[i], minValue, maxValue, "away-lost");
        lost.title =
          "Log-probability " +
          formatNumber(before.log_probability) +
          " before, " +
          formatNumber(row.log_probability) +
          " after, in nats, mean " +
          describeSample(data);
        line.append(
          el(
            "td",
            { className: "away-right", title: axis.title },
            el("span", {
              className: "away-before",
              textContent: formatPercent(before.exact_match) + " → ",
            }),
            formatPercent(row.exact_match),
          ),
          el("td", { className: "away-bars" }, axis),
          el("td", {
            className: "away-right",
            textContent: Math.abs(losses[i]) < 0.0005 ? "0" : formatWithMinusSign(losses[i]),
            title: lost.title,
          }),
          el("td", { className: "away-bars" }, lost),
        );
        return line;
      }),
    );
  }
  updateCheckboxes();
}
function updateCheckboxes() {
  for (const box of VIEWS.away.box.querySelectorAll(".away-table input"))
    box.checked = box.parts.every((part) => ablationState.parts.has(part));
}
function renderAblationOfInput(own) {
  const keep = ablationState.set === "keep",
    n = ablationState.parts.size;
  const { answer } = own,
    mark = (written) =>
      !answer
        ? []
        : [
            isCorrect({ written, answer })
              ? el("span", { className: "ok", textContent: "✓" })
              : el("span", { className: "away-cross", textContent: "✗" }),
          ];
  const ofWhat = answer
    ? "Log-probability of the whole target of this sequence, teacher-forced"
    : "Log-probability of the output of the intact model; the target is unknown";
  const line = (what, { written, log_probability: log }) =>
    el(
      "tr",
      {},
      el("td", { textContent: what }),
      el("td", { className: "away-symbols" }, ...diffTokens(written, answer), ...mark(written)),
      el("td", {
        className: "away-right",
        textContent: formatWithMinusSign(log) + " nats",
        title: ofWhat,
      }),
    );
  queryView("away", ".away-own tbody").replaceChildren(
    line("intact", own.whole),
    ...(n
      ? [
          line(
            keep
              ? "kept " +
                  n +
                  " of " +
                  pluralize(own.parts.filter((name) => name.includes("head ")).length, "head")
              : "without " + pluralize(n, "component"),
            own.without,
          ),
        ]
      : []),
  );
  queryView("away", ".away-own-words").textContent = n
    ? (keep ? "Kept: " : "Ablated: ") + [...ablationState.parts].join("; ") + "."
    : keep
      ? "Select heads in the list to keep; all others are ablated for this sequence."
      : "Select components in the list to ablate them for this sequence.";
  queryView("away", ".away-none").hidden = !n;
}

// Patching has its own request, sent after a new sequence, position or token.
async function runPatching() {
  const result = resultByView.away,
    requestId = ++ablationState.requestId,
    n = result.source.length - 1;
  ablationState.position = Math.min(ablationState.position, n - 1);
  if (
    !result.symbols.includes(ablationState.symbol) ||
    ablationState.symbol === result.source[ablationState.position]
  )
    ablationState.symbol =
      result.symbols[
        (result.symbols.indexOf(result.source[ablationState.position]) + 1) % result.symbols.length
      ];
  const data = await requestView("patch", {
    source_position: ablationState.position,
    symbol: ablationState.symbol,
  });
  if (requestId !== ablationState.requestId) return;
  ablationState.error = data.error || "";
  if (!data.error) ablationState.patch = data;
  renderPatching();
}
function renderPatching() {
  const data = ablationState.patch,
    own = resultByView.away,
    words = queryView("away", ".away-patch-words");
  queryView("away", ".away-position").replaceChildren(
    ...own.source
      .slice(0, -1)
      .map(
        (name, i) =>
          new Option(name + " at position " + (i + 1), i, false, i === ablationState.position),
      ),
  );
  words.classList.toggle("away-error", Boolean(ablationState.error));
  words.textContent = formatMessage(ablationState.error);
  queryView("away", ".away-symbol").replaceChildren(
    ...own.symbols
      .filter((name) => name !== own.source[ablationState.position])
      .map((name) => new Option(name, name, false, name === ablationState.symbol)),
  );
  if (!data) {
    queryView("away", ".away-patch tbody").replaceChildren();
    return;
  }
  if (!ablationState.error)
    words.textContent =
      "With " +
      data.changed.join(" ") +
      ", the target at position " +
      (data.position + 1) +
      " is " +
      data.other +
      " instead of " +
      data.token +
      ". Logit of " +
      data.token +
      " minus logit of " +
      data.other +
      ": " +
      formatSigned(data.before) +
      " clean, " +
      formatSigned(data.after) +
      " corrupted. The bars show the fraction of this difference that each head recovers. " +
      "Fractions need not sum to 1, because heads depend on each other.";
  const ranked = [...data.heads].sort((a, b) => b.recovered - a.recovered),
    low = Math.min(0, ...ranked.map((h) => h.recovered)),
    high = Math.max(1, ...ranked.map((h) => h.recovered));
  queryView("away", ".away-patch tbody").replaceChildren(
    ...ranked.map((head) => {
      const title =
        head.name +
        ": " +
        formatNumber(head.recovered) +
        " of the logit difference is recovered, on this sequence, teacher-forced";
      return el(
        "tr",
        { title },
        el("td", { textContent: shortHeadName(head) }),
        el("td", { className: "away-bars" }, signedBar(head.recovered, low, high, "away-share")),
        el("td", {
          className: "away-right",
          textContent: (head.recovered <= -0.005 ? "−" : "") + Math.abs(head.recovered).toFixed(2),
        }),
      );
    }),
  );
}

// ---------------------------------------------------------------- logit lens
const logitLensState = {
  at: [null, 0],
  symbol: null,
  against: null,
  order: "size",
  parts: null,
  error: "",
  requestId: 0,
  of: null,
};
VIEWS.lens = {
  title: "Logit lens",
  explain:
    "Predictions of each decoder layer, teacher-forced. Darker cells have a higher " +
    "probability; correct tokens are framed. Select a cell to see the contribution of each " +
    "component to the logit.",
  build(box) {
    const symbol = el("select", { className: "lens-symbol", ariaLabel: "Token" }),
      against = el("select", { className: "lens-against", ariaLabel: "Baseline token" });
    symbol.addEventListener("change", () => {
      logitLensState.symbol = symbol.value;
      if (logitLensState.against === symbol.value) logitLensState.against = null;
      loadAttribution();
    });
    against.addEventListener("change", () => {
      logitLensState.against =
        { runner: null, none: "" }[against.value] === undefined
          ? against.value
          : { runner: null, none: "" }[against.value];
      loadAttribution();
    });
    box.append(
      el("div", { className: "lens-scroll" }, el("table", { className: "lens-table picture" })),
      el("p", { className: "caption lens-caption" }),
      el("h4", {
        className: "lens-title",
        textContent: "Direct logit attribution",
        title:
          "The output of each component, passed through the final norm with a fixed scale " +
          "and through the output projection",
      }),
      el(
        "div",
        { className: "row" },
        el("label", {}, "token ", symbol),
        el("label", {}, "minus ", against),
        el(
          "span",
          { className: "lens-columns" },
          "sort by ",
          createSegmentedControl(
            [
              ["size", "magnitude"],
              ["model", "model order"],
            ],
            logitLensState.order,
            (value) => {
              logitLensState.order = value;
              renderAttribution();
            },
            "Order",
          ),
        ),
      ),
      el("p", { className: "hint lens-words", role: "status" }),
      el("table", { className: "lens-parts picture" }, el("tbody")),
    );
    box.querySelector(".lens-table").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
        event.key
      ];
      if (!step || !resultByView.lens) return;
      event.preventDefault();
      event.stopPropagation();
      const data = resultByView.lens,
        bound = (i, n) => Math.max(0, Math.min(n - 1, i));
      selectCell(
        [
          bound(logitLensState.at[0] + step[0], data.layers.length),
          bound(logitLensState.at[1] + step[1], data.right.length),
        ],
        true,
      );
    });
  },
  draw(data) {
    const layers = data.layers.length,
      n = data.right.length,
      focused = document.activeElement && document.activeElement.matches(".lens-cell");
    logitLensState.at = [
      Math.min(logitLensState.at[0] ?? layers - 1, layers - 1),
      Math.min(logitLensState.at[1], n - 1),
    ];
    const heading = (text, names, title) =>
      el(
        "tr",
        { title },
        el("th", { scope: "row", textContent: text }),
        ...names.map((name) => el("th", { scope: "col", textContent: name })),
      );
    queryView("lens", ".lens-table").replaceChildren(
      el(
        "thead",
        {},
        heading(
          "position",
          data.right.map((_, i) => i + 1),
          "Positions of the output",
        ),
        heading("input", data.decoder_input, "Decoder input at this position"),
        data.answer
          ? heading("target", data.right, "Correct next token")
          : heading("output", data.right, "Generated next token; the target is unknown"),
      ),
      el(
        "tbody",
        {},
        ...data.layers.map((name, l) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", textContent: name }),
            ...data.candidates[l].map((candidates, t) => {
              const [[symbol, probability]] = candidates,
                cell = el("td", { className: "lens-cell", textContent: symbol, tabIndex: -1 });
              shadeCell(cell, probability);
              if (symbol === data.right[t]) cell.classList.add("lens-right");
              cell.setAttribute("aria-label", describeCell(data, l, t));
              cell.addEventListener("pointerenter", () => {
                queryView("lens", ".lens-caption").textContent = describeCell(data, l, t);
              });
              cell.addEventListener("pointerleave", () => renderSelection());
              cell.addEventListener("click", () => selectCell([l, t], true));
              cell.addEventListener("focus", () => {
                if (logitLensState.at[0] !== l || logitLensState.at[1] !== t) selectCell([l, t]);
              });
              return cell;
            }),
          ),
        ),
      ),
    );
    renderSelection(focused);
    if (data !== logitLensState.of) {
      logitLensState.of = data;
      loadAttribution();
    } else renderAttribution();
  },
  forget() {
    logitLensState.at = [null, 0];
    logitLensState.symbol = logitLensState.against = logitLensState.parts = null;
    logitLensState.error = "";
  },
  options: () => ({
    at: logitLensState.at,
    symbol: logitLensState.symbol,
    against: logitLensState.against,
  }),
  take({ at, symbol, against }) {
    if (Array.isArray(at) && at.length === 2 && at.every((i) => Number.isInteger(i) && i >= 0))
      logitLensState.at = at;
    for (const [name, value] of [
      ["symbol", symbol],
      ["against", against],
    ])
      if (typeof value === "string") logitLensState[name] = value;
  },
  unpacked: (data) => ({ ...data, contributions: logitLensState.parts }),
  rows: (data) => [
    ...data.layers.flatMap((layer, l) =>
      data.candidates[l].flatMap((candidates, t) =>
        candidates.map(([symbol, probability], rank) => ({
          layer,
          place: t + 1,
          decoder_input: data.decoder_input[t],
          rank: rank + 1,
          symbol,
          probability,
          [data.answer ? "right" : "written"]: data.right[t],
          ["probability_of_" + (data.answer ? "right" : "written")]: data.of_right[l][t],
        })),
      ),
    ),
    ...(logitLensState.parts
      ? logitLensState.parts.parts.map((part) => ({
          place: logitLensState.parts.position + 1,
          part: part.name,
          symbol: logitLensState.parts.symbol,
          against: logitLensState.parts.against,
          logit: part.logit,
        }))
      : []),
  ],
};
function describeCell(data, l, t) {
  const where = l ? "After " + data.layers[l] : "Before the first layer";
  return (
    where +
    ", position " +
    (t + 1) +
    ": " +
    data.candidates[l][t].map(([name, p]) => name + " (" + formatPercent(p) + ")").join(", ") +
    ". " +
    (data.answer ? "Target: " : "The target is unknown; the model generated ") +
    data.right[t] +
    ", with probability " +
    formatPercent(data.of_right[l][t]) +
    "."
  );
}
function renderSelection(focus = false) {
  const data = resultByView.lens,
    [l, t] = logitLensState.at,
    table = queryView("lens", ".lens-table"),
    rows = [...table.tBodies[0].rows];
  for (const row of table.rows)
    [...row.cells].forEach((cell, k) => cell.classList.toggle("lens-column", k === t + 1));
  rows.forEach((row, r) =>
    [...row.cells].slice(1).forEach((cell, k) => {
      cell.tabIndex = r === l && k === t ? 0 : -1;
    }),
  );
  queryView("lens", ".lens-caption").textContent = describeCell(data, l, t);
  if (focus) rows[l].cells[t + 1].focus();
}
function selectCell(at, focus = false) {
  const moved = at[1] !== logitLensState.at[1];
  logitLensState.at = at;
  renderSelection(focus);
  if (moved) {
    logitLensState.symbol = logitLensState.against = null;
    loadAttribution();
  }
}
async function loadAttribution() {
  const requestId = ++logitLensState.requestId,
    options = {
      position: logitLensState.at[1],
      ...(logitLensState.symbol === null ? {} : { symbol: logitLensState.symbol }),
      ...(logitLensState.against === null ? {} : { against: logitLensState.against }),
    };
  const data = await requestView("contributions", options);
  if (requestId !== logitLensState.requestId) return; // the position or the sequence has changed
  logitLensState.error = data.error || "";
  logitLensState.parts = data.error
    ? /post-norm/.test(data.error)
      ? null
      : logitLensState.parts
    : data;
  renderAttribution();
}
function renderAttribution() {
  const data = resultByView.lens,
    attribution = logitLensState.parts,
    words = queryView("lens", ".lens-words"),
    body = queryView("lens", ".lens-parts tbody");
  // a post-norm model has no attribution; this is not an error
  words.classList.toggle("lens-error", Boolean(logitLensState.error && attribution));
  for (const each of VIEWS.lens.box.querySelectorAll(".row > *")) each.hidden = !attribution;
  words.textContent = formatMessage(logitLensState.error);
  if (!attribution) {
    body.replaceChildren();
    return;
  }
  const { symbol, against, runner_up: runner } = attribution,
    of = symbol + (against === null ? "" : " minus " + against);
  queryView("lens", ".lens-symbol").replaceChildren(
    ...data.vocabulary.map(
      (name) =>
        new Option(
          name + (data.answer && name === data.right[attribution.position] ? " (target)" : ""),
          name,
          false,
          name === symbol,
        ),
    ),
  );
  queryView("lens", ".lens-against").replaceChildren(
    new Option(runner + " (most probable other)", "runner", false, logitLensState.against === null),
    new Option("none", "none", false, logitLensState.against === ""),
    ...data.vocabulary
      .filter((name) => name !== symbol)
      .map((name) => new Option(name, name, false, name === logitLensState.against)),
  );
  if (!logitLensState.error)
    words.textContent =
      "Position " +
      (attribution.position + 1) +
      ": the contributions sum to " +
      formatSigned(attribution.sum) +
      "; the model's logit of " +
      of +
      " is " +
      formatSigned(attribution.logit) +
      ". The scale of the final norm is fixed, so the bars decompose the logit; they do " +
      "not show the effect of an ablation." +
      (against === null
        ? " The softmax ignores a constant in all logits, so a single logit has little meaning."
        : "");
  const ranked =
    logitLensState.order === "size"
      ? [...attribution.parts].sort((a, b) => Math.abs(b.logit) - Math.abs(a.logit))
      : attribution.parts;
  const low = Math.min(0, ...ranked.map((part) => part.logit)),
    high = Math.max(0, ...ranked.map((part) => part.logit));
  const line = (name, value, className) =>
    el(
      "tr",
      {
        className,
        title:
          name +
          ": " +
          formatSigned(value) +
          " to the logit of " +
          of +
          " at position " +
          (attribution.position + 1) +
          ", on this sequence",
      },
      el("td", { textContent: name }),
      el(
        "td",
        { className: "lens-bars" },
        className ? "" : signedBar(value, low, high, "lens-bar"),
      ),
      el("td", { className: "lens-number", textContent: formatSigned(value) }),
    );
  body.replaceChildren(
    ...ranked.map((part) => line(part.name, part.logit, "")),
    line("sum", attribution.sum, "lens-sum"),
  );
}
