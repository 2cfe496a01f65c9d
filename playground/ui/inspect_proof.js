// ---------------------------------------------------------------- head roles, ablation, logit lens
// Measurements on hundreds of held-out sequences are slow and do not depend on the user's sequence.
// These views request the answer to that sequence quickly, and cache the measurements by model and
// step.
const measured = new Map(); // cache key -> { data, error, busy, of }
const question = (view, options) =>
  JSON.stringify([
    state.subject,
    view === "heads-over-training" ? null : state.step,
    view,
    options,
  ]);
// Request a measurement once. `of` is the answer that is displayed at the time of the request. The
// previous result stays until a newer one arrives.
async function find(view, options, redrawn, of) {
  const key = question(view, options),
    known = measured.get(key);
  if (known && known.busy) return;
  measured.set(key, { ...known, busy: true, error: "", of });
  redraw(redrawn);
  const data = await ask(view, options);
  measured.set(key, data.error ? { ...known, busy: false, error: data.error, of } : { data, of });
  redraw(redrawn);
}
const onSequences = (data) =>
  "over " +
  plural(data.sequences, "held-out sequence") +
  " of " +
  (data.lengths[0] === data.lengths[1]
    ? plural(data.lengths[0], "token")
    : data.lengths.join(" to ") + " tokens");
const shortName = (head) => head.kind + " " + head.layer + "." + head.head;
const signless = (x) => number(x).replace("-", "−");
const sign = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + number(Math.abs(x));
// Shade a cell so that its number stays readable.
function shadeCell(cell, share) {
  const thousandths = Math.round(1000 * Math.max(0, Math.min(1, share)));
  cell.style.setProperty("background-color", ramp(thousandths), "important");
  // Use the text colour with the higher contrast (relative luminance and contrast of WCAG 2).
  const light = rampTable()[thousandths].map((c) =>
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
const MEANT = {
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
const PATTERN_LINES = {
  diagonal: ["#d98200", "#ffb000", []],
  "anti-diagonal": ["#00795a", "#2fd6a5", []],
  previous: ["#b8478c", "#f08fc4", [6, 3]],
  next: ["#c0392b", "#ff7b61", [2, 2]],
  first: ["#7a5c00", "#d9c34a", [6, 3]],
  last: ["#5b3fc4", "#b7a4ff", [2, 2]],
  uniform: ["#6b7280", "#c3c8d1", []],
  aligned: ["#16181d", "#f2f4f7", [1, 3]],
};
const COLUMNS = [
  ["name", "head", "attention type, layer.head"],
  ...PATTERNS.map((name) => [name, name, "Fraction of the attention weights: " + MEANT[name]]),
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
  ["says", "role", "Description of the pattern with the largest fraction of the attention"],
];
const scored = {
  sort: "name",
  down: false,
  kind: "all",
  head: null,
  pattern: null,
  at: null,
  last: null,
  timer: null,
};
const valueIn = (head, column) =>
  PATTERNS.includes(column) ? head.patterns[column] : column === "name" ? 0 : head[column];

VIEWS.heads = {
  title: "Head roles",
  explain:
    "Fraction of each head's attention on named patterns, measured on held-out sequences. " +
    "The tick in a cell is the baseline of a uniform row.",
  asks: "away-answer",
  build(box) {
    const head = el("tr");
    for (const [name, text, title] of COLUMNS) {
      const button = el("button", { type: "button", textContent: text, title });
      button.addEventListener("click", () => {
        scored.down =
          scored.sort === name
            ? !scored.down
            : !["name", "says", "distance", "entropy"].includes(name);
        scored.sort = name;
        redraw("heads");
      });
      head.append(
        el(
          "th",
          {
            scope: "col",
            className:
              name === "says" || name === "name"
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
      scored.pattern = pattern.value;
      redraw("heads");
    });
    const measure = el("button", {
      type: "button",
      className: "quiet heads-measure",
      textContent: "Measure over training",
      title: "The same scores at up to 24 steps with stored weights; takes some seconds",
    });
    measure.addEventListener("click", () =>
      find("heads-over-training", {}, "heads", answers.heads),
    );
    box.append(
      el(
        "div",
        { className: "row" },
        choice(
          [
            ["all", "all"],
            ["cross", "cross"],
            ["encoder", "encoder"],
            ["decoder", "decoder"],
          ],
          scored.kind,
          (value) => {
            scored.kind = value;
            redraw("heads");
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
      scored.at = place;
      drawOver();
    };
    canvas.addEventListener("pointermove", (event) =>
      at(canvas.nearest ? canvas.nearest(event.offsetX) : null),
    );
    canvas.addEventListener("pointerleave", () => at(null));
    canvas.addEventListener("blur", () => at(null));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        over = overTraining();
      if (!by || !over) return;
      event.preventDefault();
      event.stopPropagation();
      at(
        Math.max(
          0,
          Math.min(
            over.steps.length - 1,
            scored.at === null ? (by > 0 ? 0 : over.steps.length - 1) : scored.at + by,
          ),
        ),
      );
    });
  },
  draw(own) {
    const known = measured.get(question("heads", {}));
    // In a training run, a later step causes a new request; the current result stays until then.
    // Dragging
    // the slider causes one request, at the step where it stops.
    if (
      !known ||
      (!known.busy && known.of !== own && (known.error || known.data.step < own.step))
    ) {
      clearTimeout(scored.timer);
      const key = question("heads", {});
      scored.timer = setTimeout(
        () => {
          if (key === question("heads", {})) find("heads", {}, "heads", own);
        },
        known || scored.last ? 250 : 0,
      );
    }
    const data = (known && known.data) || scored.last,
      stale = !known || !known.data;
    const words = $v("heads", ".heads-words");
    words.classList.toggle("heads-error", Boolean(known && known.error));
    words.textContent =
      known && known.error
        ? sentenceOf(known.error)
        : stale
          ? "Measuring."
          : sentenceOf(onSequences(data) + ", teacher-forced");
    $v("heads", ".heads-table").classList.toggle("heads-stale", stale);
    if (!data) return;
    scored.last = data;
    if (!data.heads.some((head) => head.name === scored.head))
      scored.head = data.heads.reduce((best, head) =>
        (head.aligned || 0) > (best.aligned || 0) ? head : best,
      ).name;
    drawScores(data);
    const over = measured.get(question("heads-over-training", {})),
      hasHistory = /^(run|watch):/.test(state.subject) && recorded.length > 1;
    $v("heads", ".heads-measure").disabled = !hasHistory || Boolean(over && over.busy);
    $v("heads", ".heads-over-words").textContent = !hasHistory
      ? "Only runs store the weights of earlier steps. Train a run and open it here."
      : !over
        ? ""
        : over.busy
          ? "Measuring."
          : over.error
            ? sentenceOf(over.error)
            : sentenceOf(
                plural(over.data.steps.length, "step") +
                  " of " +
                  over.data.kept.toLocaleString("en") +
                  " stored, " +
                  onSequences(over.data),
              );
    $v("heads", ".heads-two").hidden = !overTraining();
    drawOver();
  },
  want: () => ({ kind: scored.kind, sort: scored.sort, down: scored.down, head: scored.head }),
  take(options) {
    if (["all", "cross", "encoder", "decoder"].includes(options.kind)) {
      scored.kind = options.kind;
      press($v("heads", ".choice"), options.kind);
    }
    if (COLUMNS.some(([name]) => name === options.sort)) {
      scored.sort = options.sort;
      scored.down = options.down === true;
    }
    if (typeof options.head === "string") scored.head = options.head;
  },
  forget() {
    scored.last = null;
    scored.head = null;
    scored.pattern = null;
  },
  unpacked: () => ({ ...scored.last, over_training: overTraining() }),
  rows: () => [
    ...(scored.last
      ? scored.last.heads.map((head) =>
          scoreRow(scored.last.step, head, (values) => values, head.aligned, head.entropy, {
            distance: head.distance,
            looks_like: head.says,
          }),
        )
      : []),
    ...(overTraining()
      ? overTraining().steps.flatMap((step, i) =>
          overTraining().heads.map((head) =>
            scoreRow(
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
const scoreRow = (step, head, of, aligned, entropy, more) => ({
  step,
  kind: head.kind,
  layer: head.layer,
  head: head.head,
  ...Object.fromEntries(PATTERNS.map((name) => [name, of(head.patterns[name])])),
  entropy,
  aligned,
  ...more,
});
function overTraining() {
  const over = measured.get(question("heads-over-training", {}));
  return over && over.data;
}

function drawScores(data) {
  const rows = data.heads.filter((head) => scored.kind === "all" || head.kind === scored.kind);
  if (scored.sort === "says") rows.sort((a, b) => a.says.localeCompare(b.says));
  else if (scored.sort !== "name")
    rows.sort(
      (a, b) => (valueIn(a, scored.sort) ?? Infinity) - (valueIn(b, scored.sort) ?? Infinity),
    );
  if (scored.down) rows.reverse();
  if (scored.down)
    // missing values come last in both orders
    rows.sort((a, b) => (valueIn(a, scored.sort) === null) - (valueIn(b, scored.sort) === null));
  for (const th of VIEWS.heads.box.querySelectorAll(".heads-table th")) {
    if (th.dataset.column === scored.sort)
      th.setAttribute("aria-sort", scored.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  }
  const over = onSequences(data),
    focused = document.activeElement && document.activeElement.dataset.head;
  $v("heads", ".heads-table tbody").replaceChildren(
    ...rows.map((head) => {
      const button = el("button", {
        type: "button",
        textContent: shortName(head),
        title: head.name,
      });
      button.dataset.head = head.name;
      button.setAttribute("aria-pressed", String(head.name === scored.head));
      const row = el(
        "tr",
        { className: head.name === scored.head ? "heads-chosen" : "" },
        el("td", {}, button),
      );
      row.addEventListener("click", () => {
        scored.head = head.name;
        scored.pattern = null;
        redraw("heads");
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
            ? number(share) +
              " overlap with a uniform row" +
              (chance === null
                ? ""
                : "; a row with all weight on one position has " + number(chance))
            : number(share) +
              " of its attention is on the pattern: " +
              MEANT[name] +
              (chance === null ? "" : "; uniform baseline " + number(chance))) +
          "; mean over all rows, " +
          over;
        row.append(cell);
      }
      const say = (value, title) =>
        el("td", {
          className: "heads-number",
          textContent: value === null ? "" : value.toFixed(2),
          title:
            value === null
              ? "Available only for tasks with a known source token for each target token"
              : title + ", " + over,
        });
      row.append(
        say(
          head.entropy,
          number(head.entropy) + " nats; a uniform row has " + number(head.most_entropy),
        ),
        say(head.aligned, "Fraction of the attention on the aligned source token"),
        say(head.distance, "Distance from the aligned source token, in positions"),
      );
      row.append(el("td", { className: "heads-says", textContent: head.says }));
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
function drawOver() {
  const over = overTraining(),
    canvas = $v("heads", ".heads-chart");
  if (!over || !canvas.offsetParent) return;
  const head = over.heads.find((each) => each.name === scored.head) || over.heads[0],
    n = over.steps.length - 1,
    now = scored.last && scored.last.heads.find((each) => each.name === head.name);
  const series = [
    ...PATTERNS.map((name) => [name, head.patterns[name]]),
    ["aligned", head.aligned],
  ].filter(([, values]) => values.every((value) => value !== null));
  const best = scored.pattern || (now && now.best) || "anti-diagonal";
  const [c, width, height] = prepare(canvas, 220),
    left = 40,
    right = width - 10,
    top = 10,
    bottom = height - 24,
    dark = document.body.classList.contains("dark");
  const low = Math.log(1 + over.steps[0]),
    high = Math.log(1 + over.steps[n]),
    x = (step) => left + ((right - left) * (Math.log(1 + step) - low)) / (high - low || 1),
    y = (share) => bottom - (bottom - top) * share;
  canvas.nearest = (px) =>
    over.steps.reduce(
      (near, step, i) => (Math.abs(x(step) - px) < Math.abs(x(over.steps[near]) - px) ? i : near),
      0,
    );
  c.font = "12px " + css("--font");
  c.lineWidth = 1;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    c.strokeStyle = css("--pg-grid");
    c.beginPath();
    c.moveTo(left, Math.round(y(share)) + 0.5);
    c.lineTo(right, Math.round(y(share)) + 0.5);
    c.stroke();
    c.fillStyle = css("--pg-quiet-text");
    if (share % 0.5 === 0) c.fillText(String(share), left - 6, y(share));
  }
  c.textBaseline = "alphabetic";
  let free = -Infinity;
  over.steps.forEach((step, i) => {
    const text = step.toLocaleString("en"),
      wide = c.measureText(text).width,
      at = Math.max(left, Math.min(right - wide, x(step) - wide / 2));
    if (
      at < free ||
      (i < n && at + wide + 8 > right - c.measureText(over.steps[n].toLocaleString("en")).width)
    )
      return;
    c.textAlign = "left";
    c.fillText(text, at, height - 6);
    free = at + wide + 12;
  });
  const chance = head.chance[best];
  const hasChance = chance !== null && chance !== undefined;
  if (hasChance) {
    c.strokeStyle = css("--pg-quiet");
    c.setLineDash([3, 4]);
    c.beginPath();
    c.moveTo(left, y(chance));
    c.lineTo(right, y(chance));
    c.stroke();
    c.setLineDash([]);
  }
  const colour = (name) => (name === best ? css("--pg-accent") : PATTERN_LINES[name][dark ? 1 : 0]);
  for (const [name, values] of [...series].sort(([a], [b]) => (a === best) - (b === best))) {
    c.strokeStyle = c.fillStyle = colour(name);
    c.lineWidth = name === best ? 2.6 : 1.4;
    c.lineJoin = "round";
    c.setLineDash(name === best ? [] : PATTERN_LINES[name][2]);
    c.beginPath();
    values.forEach((value, i) =>
      i ? c.lineTo(x(over.steps[i]), y(value)) : c.moveTo(x(over.steps[i]), y(value)),
    );
    c.stroke();
    c.setLineDash([]);
    if (name === best)
      values.forEach((value, i) => {
        c.beginPath();
        c.arc(x(over.steps[i]), y(value), 2.2, 0, 7);
        c.fill();
      });
  }
  if (hasChance) {
    const text = best === "uniform" ? "a single position" : "uniform baseline of " + best;
    c.textAlign = "left";
    c.lineWidth = 4;
    c.strokeStyle = css("--body-background-fill");
    c.strokeText(text, left + 4, y(chance) - 5);
    c.fillStyle = css("--pg-quiet-text");
    c.fillText(text, left + 4, y(chance) - 5);
  }
  for (const [step, mark] of [
    [state.step, "--pg-accent"],
    [scored.at === null ? null : over.steps[scored.at], "--pg-mark"],
  ]) {
    if (step === null || step === undefined || step < over.steps[0] || step > over.steps[n])
      continue;
    c.strokeStyle = css(mark);
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(Math.round(x(step)) + 0.5, top);
    c.lineTo(Math.round(x(step)) + 0.5, bottom);
    c.stroke();
  }
  const at = scored.at === null ? n : scored.at;
  $v("heads", ".heads-chart-title").textContent =
    head.name[0].toUpperCase() + head.name.slice(1) + ": scores by step (log)";
  $v("heads", ".heads-legend").replaceChildren(
    ...series.map(([name, values]) => {
      const line = el("i"),
        item = el(
          "span",
          {
            className: name === best ? "heads-lead" : "",
            title:
              name === "aligned"
                ? "Share of the attention on the source symbol that the task points to"
                : MEANT[name],
          },
          line,
          name + " " + values[at].toFixed(2),
        );
      line.style.borderTop =
        (name === best
          ? "3px solid "
          : PATTERN_LINES[name][2].length
            ? "2px dashed "
            : "2px solid ") + colour(name);
      return item;
    }),
  );
  const became = (series.find(([name]) => name === best) || [])[1],
    half = became
      ? over.steps[became.findIndex((value) => value >= (became[0] + became[n]) / 2)]
      : null;
  const grown =
    became && became[n] - became[0] > 0.1
      ? " It reached half of its present score on " +
        best +
        " at step " +
        half.toLocaleString("en") +
        "."
      : "";
  const words =
    scored.at === null
      ? "Vertical axis: fraction of the attention, 0 to 1. Horizontal axis: step." + grown
      : "Step " +
        over.steps[at].toLocaleString("en") +
        ": entropy " +
        number(head.entropy[at]) +
        " nats; the legend shows the fractions.";
  $v("heads", ".heads-chart-words").textContent = words;
  canvas.setAttribute("aria-label", head.name + ", scores by step. " + words);

  $v("heads", ".heads-pattern").value = best;
  const shown = over.heads.filter((each) => scored.kind === "all" || each.kind === scored.kind),
    caption = $v("heads", ".heads-map-words");
  caption.dataset.resting =
    "Rows: heads as layer.head. Columns: steps. Click a row to select its head.";
  matrix(
    $v("heads", ".heads-map"),
    {
      rows: shown.map(shortName),
      columns: over.steps.map((step, i) => (over.steps[n] > 99 && (n - i) % 2 ? "" : String(step))),
      size: 18,
      weights: shown.map((each) => each.patterns[best]),
      possible: shown.map((each) => each.patterns[best].map((value) => value !== null)),
      chosen: shown.indexOf(head) < 0 ? null : [shown.indexOf(head), n],
    },
    {
      caption,
      hover: (r, k) =>
        shown[r].name +
        " at step " +
        over.steps[k].toLocaleString("en") +
        ": " +
        number(shown[r].patterns[best][k]) +
        " of its attention on " +
        best +
        ".",
      choose: (r) => {
        scored.head = shown[r].name;
        redraw("heads");
      },
    },
  );
}

// ---------------------------------------------------------------- ablation
const taken = {
  how: "zero",
  set: "single",
  parts: new Set(),
  place: 0,
  symbol: null,
  patch: null,
  about: "",
  asked: 0,
  error: "",
};
const HOWS = [
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
const SETS = [
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
  asks: "away-answer",
  build(box) {
    const measure = el("button", {
      type: "button",
      className: "quiet away-measure",
      textContent: "Measure",
    });
    measure.addEventListener("click", () =>
      find("away", { how: taken.how, set: taken.set }, "away", answers.away),
    );
    const none = el("button", {
      type: "button",
      className: "quiet away-none",
      textContent: "Restore all",
    });
    none.addEventListener("click", () => {
      taken.parts.clear();
      redraw("away");
      refresh("away", 0);
    });
    const place = el("select", { className: "away-place", ariaLabel: "Position in the source" }),
      symbol = el("select", { className: "away-symbol", ariaLabel: "Replacement token" });
    place.addEventListener("change", () => {
      taken.place = +place.value;
      taken.symbol = null;
      patchNow();
    });
    symbol.addEventListener("change", () => {
      taken.symbol = symbol.value;
      patchNow();
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
            choice(
              SETS,
              taken.set,
              (value) => {
                if ((value === "keep") !== (taken.set === "keep")) taken.parts.clear();
                taken.set = value;
                redraw("away");
                refresh("away", 0);
              },
              "Components to ablate",
            ),
            el(
              "span",
              { className: "away-beside" },
              "replaced with ",
              choice(
                HOWS,
                taken.how,
                (value) => {
                  taken.how = value;
                  redraw("away");
                  refresh("away", 0);
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
                el("th", { scope: "col" }, unseen("Select")),
                el("th", { scope: "col", className: "away-what" }, unseen("Ablated component")),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "exact match",
                  title:
                    "Fraction of the held-out sequences with a completely correct answer, " +
                    "before and after",
                }),
                el("th", { scope: "col" }, unseen("change")),
                el("th", {
                  scope: "col",
                  className: "away-right",
                  textContent: "drop in nats",
                  title:
                    "Mean drop of the log-probability of the whole target, in nats, over " +
                    "the same sequences",
                }),
                el("th", { scope: "col" }, unseen("bar chart")),
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
            el("label", {}, "replace ", place),
            el("label", {}, " with ", symbol),
          ),
          el("p", { className: "hint away-patch-words", role: "status" }),
          el("table", { className: "away-patch picture" }, el("tbody")),
        ),
      ),
    );
  },
  want: () => ({
    how: taken.how,
    set: taken.set,
    keep: taken.set === "keep" && taken.parts.size > 0,
    parts: [...taken.parts],
  }),
  take(options) {
    if (HOWS.some(([name]) => name === options.how)) taken.how = options.how;
    if (SETS.some(([name]) => name === options.set)) taken.set = options.set;
    if (Array.isArray(options.parts))
      taken.parts = new Set(options.parts.filter((name) => typeof name === "string"));
    for (const box of VIEWS.away.box.querySelectorAll(".choice"))
      for (const value of [taken.how, taken.set])
        if (box.querySelector(`[data-value="${value}"]`)) press(box, value);
  },
  draw(own) {
    const known = measured.get(question("away", { how: taken.how, set: taken.set })),
      data = known && known.data;
    const words = $v("away", ".away-words"),
      measure = $v("away", ".away-measure");
    words.classList.toggle("away-error", Boolean(known && known.error));
    words.textContent = !known
      ? "Not measured yet."
      : known.busy
        ? "Measuring one component at a time."
        : known.error
          ? sentenceOf(known.error)
          : "Baseline: exact match " +
            percent(data.before.exact_match) +
            ", log-probability " +
            signless(data.before.log_probability) +
            " nats, " +
            onSequences(data) +
            (data.fewer ? " (fewer than 512, because of the size of the model)" : "") +
            (data.step === own.step
              ? "."
              : "; measured at step " +
                data.step.toLocaleString("en") +
                ", the model is now at step " +
                own.step.toLocaleString("en") +
                ".");
    measure.disabled = Boolean(known && known.busy);
    measure.textContent = data ? "Measure again" : "Measure";
    $v("away", ".away-finding").textContent = data ? data.finding : "";
    drawAway(own, data);
    drawOwn(own);
    const about = JSON.stringify([state.subject, own.step, own.source]);
    if (about !== taken.about) {
      taken.about = about;
      patchNow();
    } else drawPatch();
  },
  forget() {
    taken.parts.clear();
    taken.patch = null;
    taken.about = "";
    taken.place = 0;
    taken.symbol = null;
  },
  unpacked: (own) => ({
    own,
    patching: taken.patch,
    measured: SETS.map(([set]) => measured.get(question("away", { how: taken.how, set })))
      .filter((known) => known && known.data)
      .map((known) => known.data),
  }),
  rows: (own) =>
    SETS.flatMap(([set]) => {
      const known = measured.get(question("away", { how: taken.how, set }));
      return known && known.data
        ? known.data.rows.map((row) => ({
            set,
            how: taken.how,
            part: row.name,
            exact_match_before: known.data.before.exact_match,
            exact_match_after: row.exact_match,
            log_probability_before: known.data.before.log_probability,
            log_probability_after: row.log_probability,
            sequences: known.data.sequences,
            step: known.data.step,
          }))
        : [];
    }).concat(
      taken.patch
        ? taken.patch.heads.map((head) => ({
            set: "patching",
            part: head.name,
            share_recovered: head.recovered,
            step: own.step,
          }))
        : [],
    ),
};

// The ranked components; before a measurement, all components in the order of the model.
function drawAway(own, data) {
  const body = $v("away", ".away-table tbody"),
    keep = taken.set === "keep";
  const isHead = (name) => name.includes("head ");
  const rows = data
    ? data.rows
    : taken.set === "groups"
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
  $v("away", ".away-what").textContent = keep ? "kept heads" : "ablated component";
  const signature = JSON.stringify([
    taken.set,
    taken.how,
    data && data.step,
    rows.map((row) => row.name),
  ]);
  if (body.dataset.signature !== signature) {
    body.dataset.signature = signature;
    const losses = data ? rows.map((row) => data.before.log_probability - row.log_probability) : [],
      most = Math.max(1e-9, ...losses),
      least = Math.min(0, ...losses);
    body.replaceChildren(
      ...rows.map((row, i) => {
        const box = el("input", { type: "checkbox" }),
          before = data && data.before;
        box.setAttribute("aria-label", (keep ? "Keep " : "Ablate ") + row.name);
        box.addEventListener("change", () => {
          for (const part of row.parts)
            if (box.checked) taken.parts.add(part);
            else taken.parts.delete(part);
          tick();
          refresh("away", 0);
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
          percent(before.exact_match) +
          " before, " +
          percent(row.exact_match) +
          " after, " +
          onSequences(data);
        const lost = signedBar(losses[i], least, most, "away-lost");
        lost.title =
          "Log-probability " +
          number(before.log_probability) +
          " before, " +
          number(row.log_probability) +
          " after, in nats, mean " +
          onSequences(data);
        line.append(
          el(
            "td",
            { className: "away-right", title: axis.title },
            el("span", {
              className: "away-before",
              textContent: percent(before.exact_match) + " → ",
            }),
            percent(row.exact_match),
          ),
          el("td", { className: "away-bars" }, axis),
          el("td", {
            className: "away-right",
            textContent: Math.abs(losses[i]) < 0.0005 ? "0" : signless(losses[i]),
            title: lost.title,
          }),
          el("td", { className: "away-bars" }, lost),
        );
        return line;
      }),
    );
  }
  tick();
}
function tick() {
  for (const box of VIEWS.away.box.querySelectorAll(".away-table input"))
    box.checked = box.parts.every((part) => taken.parts.has(part));
}
function drawOwn(own) {
  const keep = taken.set === "keep",
    n = taken.parts.size;
  const { answer } = own,
    mark = (written) =>
      !answer
        ? []
        : [
            isRight({ written, answer })
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
      el("td", { className: "away-symbols" }, ...marked(written, answer), ...mark(written)),
      el("td", { className: "away-right", textContent: signless(log) + " nats", title: ofWhat }),
    );
  $v("away", ".away-own tbody").replaceChildren(
    line("intact", own.whole),
    ...(n
      ? [
          line(
            keep
              ? "kept " +
                  n +
                  " of " +
                  plural(own.parts.filter((name) => name.includes("head ")).length, "head")
              : "without " + plural(n, "component"),
            own.without,
          ),
        ]
      : []),
  );
  $v("away", ".away-own-words").textContent = n
    ? (keep ? "Kept: " : "Ablated: ") + [...taken.parts].join("; ") + "."
    : keep
      ? "Select heads in the list to keep; all others are ablated for this sequence."
      : "Select components in the list to ablate them for this sequence.";
  $v("away", ".away-none").hidden = !n;
}

// Patching has its own request, sent after a new sequence, position or token.
async function patchNow() {
  const own = answers.away,
    mine = ++taken.asked,
    n = own.source.length - 1;
  taken.place = Math.min(taken.place, n - 1);
  if (!own.symbols.includes(taken.symbol) || taken.symbol === own.source[taken.place])
    taken.symbol =
      own.symbols[(own.symbols.indexOf(own.source[taken.place]) + 1) % own.symbols.length];
  const data = await ask("patch", { place: taken.place, symbol: taken.symbol });
  if (mine !== taken.asked) return;
  taken.error = data.error || "";
  if (!data.error) taken.patch = data;
  drawPatch();
}
function drawPatch() {
  const data = taken.patch,
    own = answers.away,
    words = $v("away", ".away-patch-words");
  $v("away", ".away-place").replaceChildren(
    ...own.source
      .slice(0, -1)
      .map((name, i) => new Option(name + " at position " + (i + 1), i, false, i === taken.place)),
  );
  words.classList.toggle("away-error", Boolean(taken.error));
  words.textContent = sentenceOf(taken.error);
  $v("away", ".away-symbol").replaceChildren(
    ...own.symbols
      .filter((name) => name !== own.source[taken.place])
      .map((name) => new Option(name, name, false, name === taken.symbol)),
  );
  if (!data) {
    $v("away", ".away-patch tbody").replaceChildren();
    return;
  }
  if (!taken.error)
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
      sign(data.before) +
      " clean, " +
      sign(data.after) +
      " corrupted. The bars show the fraction of this difference that each head recovers. " +
      "Fractions need not sum to 1, because heads depend on each other.";
  const ranked = [...data.heads].sort((a, b) => b.recovered - a.recovered),
    low = Math.min(0, ...ranked.map((h) => h.recovered)),
    high = Math.max(1, ...ranked.map((h) => h.recovered));
  $v("away", ".away-patch tbody").replaceChildren(
    ...ranked.map((head) => {
      const title =
        head.name +
        ": " +
        number(head.recovered) +
        " of the logit difference is recovered, on this sequence, teacher-forced";
      return el(
        "tr",
        { title },
        el("td", { textContent: shortName(head) }),
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
const reading = {
  at: [null, 0],
  symbol: null,
  against: null,
  order: "size",
  parts: null,
  error: "",
  asked: 0,
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
      reading.symbol = symbol.value;
      if (reading.against === symbol.value) reading.against = null;
      contribute();
    });
    against.addEventListener("change", () => {
      reading.against =
        { runner: null, none: "" }[against.value] === undefined
          ? against.value
          : { runner: null, none: "" }[against.value];
      contribute();
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
          { className: "lens-beside" },
          "sort by ",
          choice(
            [
              ["size", "magnitude"],
              ["model", "model order"],
            ],
            reading.order,
            (value) => {
              reading.order = value;
              drawParts();
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
      if (!step || !answers.lens) return;
      event.preventDefault();
      event.stopPropagation();
      const data = answers.lens,
        bound = (i, n) => Math.max(0, Math.min(n - 1, i));
      lookAt(
        [
          bound(reading.at[0] + step[0], data.layers.length),
          bound(reading.at[1] + step[1], data.right.length),
        ],
        true,
      );
    });
  },
  draw(data) {
    const layers = data.layers.length,
      n = data.right.length,
      focused = document.activeElement && document.activeElement.matches(".lens-cell");
    reading.at = [
      Math.min(reading.at[0] ?? layers - 1, layers - 1),
      Math.min(reading.at[1], n - 1),
    ];
    const heading = (text, names, title) =>
      el(
        "tr",
        { title },
        el("th", { scope: "row", textContent: text }),
        ...names.map((name) => el("th", { scope: "col", textContent: name })),
      );
    $v("lens", ".lens-table").replaceChildren(
      el(
        "thead",
        {},
        heading(
          "position",
          data.right.map((_, i) => i + 1),
          "Positions of the answer",
        ),
        heading("input", data.given, "Decoder input at this position"),
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
              cell.setAttribute("aria-label", tellCell(data, l, t));
              cell.addEventListener("pointerenter", () => {
                $v("lens", ".lens-caption").textContent = tellCell(data, l, t);
              });
              cell.addEventListener("pointerleave", () => tellChosen());
              cell.addEventListener("click", () => lookAt([l, t], true));
              cell.addEventListener("focus", () => {
                if (reading.at[0] !== l || reading.at[1] !== t) lookAt([l, t]);
              });
              return cell;
            }),
          ),
        ),
      ),
    );
    tellChosen(focused);
    if (data !== reading.of) {
      reading.of = data;
      contribute();
    } else drawParts();
  },
  forget() {
    reading.at = [null, 0];
    reading.symbol = reading.against = reading.parts = null;
    reading.error = "";
  },
  want: () => ({ at: reading.at, symbol: reading.symbol, against: reading.against }),
  take({ at, symbol, against }) {
    if (Array.isArray(at) && at.length === 2 && at.every((i) => Number.isInteger(i) && i >= 0))
      reading.at = at;
    for (const [name, value] of [
      ["symbol", symbol],
      ["against", against],
    ])
      if (typeof value === "string") reading[name] = value;
  },
  unpacked: (data) => ({ ...data, contributions: reading.parts }),
  rows: (data) => [
    ...data.layers.flatMap((layer, l) =>
      data.candidates[l].flatMap((candidates, t) =>
        candidates.map(([symbol, probability], rank) => ({
          layer,
          place: t + 1,
          given: data.given[t],
          rank: rank + 1,
          symbol,
          probability,
          [data.answer ? "right" : "written"]: data.right[t],
          ["probability_of_" + (data.answer ? "right" : "written")]: data.of_right[l][t],
        })),
      ),
    ),
    ...(reading.parts
      ? reading.parts.parts.map((part) => ({
          place: reading.parts.position + 1,
          part: part.name,
          symbol: reading.parts.symbol,
          against: reading.parts.against,
          logit: part.logit,
        }))
      : []),
  ],
};
function tellCell(data, l, t) {
  const where = l ? "After " + data.layers[l] : "Before the first layer";
  return (
    where +
    ", position " +
    (t + 1) +
    ": " +
    data.candidates[l][t].map(([name, p]) => name + " (" + percent(p) + ")").join(", ") +
    ". " +
    (data.answer ? "Target: " : "The target is unknown; the model generated ") +
    data.right[t] +
    ", with probability " +
    percent(data.of_right[l][t]) +
    "."
  );
}
function tellChosen(focus = false) {
  const data = answers.lens,
    [l, t] = reading.at,
    table = $v("lens", ".lens-table"),
    rows = [...table.tBodies[0].rows];
  for (const row of table.rows)
    [...row.cells].forEach((cell, k) => cell.classList.toggle("lens-column", k === t + 1));
  rows.forEach((row, r) =>
    [...row.cells].slice(1).forEach((cell, k) => {
      cell.tabIndex = r === l && k === t ? 0 : -1;
    }),
  );
  $v("lens", ".lens-caption").textContent = tellCell(data, l, t);
  if (focus) rows[l].cells[t + 1].focus();
}
function lookAt(at, focus = false) {
  const moved = at[1] !== reading.at[1];
  reading.at = at;
  tellChosen(focus);
  if (moved) {
    reading.symbol = reading.against = null;
    contribute();
  }
}
async function contribute() {
  const mine = ++reading.asked,
    options = {
      position: reading.at[1],
      ...(reading.symbol === null ? {} : { symbol: reading.symbol }),
      ...(reading.against === null ? {} : { against: reading.against }),
    };
  const data = await ask("contributions", options);
  if (mine !== reading.asked) return; // the position or the sequence has changed
  reading.error = data.error || "";
  reading.parts = data.error ? (/post-norm/.test(data.error) ? null : reading.parts) : data;
  drawParts();
}
function drawParts() {
  const data = answers.lens,
    found = reading.parts,
    words = $v("lens", ".lens-words"),
    body = $v("lens", ".lens-parts tbody");
  // a post-norm model has no attribution; this is not an error
  words.classList.toggle("lens-error", Boolean(reading.error && found));
  for (const each of VIEWS.lens.box.querySelectorAll(".row > *")) each.hidden = !found;
  words.textContent = sentenceOf(reading.error);
  if (!found) {
    body.replaceChildren();
    return;
  }
  const { symbol, against, runner_up: runner } = found,
    of = symbol + (against === null ? "" : " minus " + against);
  $v("lens", ".lens-symbol").replaceChildren(
    ...data.vocabulary.map(
      (name) =>
        new Option(
          name + (data.answer && name === data.right[found.position] ? " (target)" : ""),
          name,
          false,
          name === symbol,
        ),
    ),
  );
  $v("lens", ".lens-against").replaceChildren(
    new Option(runner + " (most probable other)", "runner", false, reading.against === null),
    new Option("none", "none", false, reading.against === ""),
    ...data.vocabulary
      .filter((name) => name !== symbol)
      .map((name) => new Option(name, name, false, name === reading.against)),
  );
  if (!reading.error)
    words.textContent =
      "Position " +
      (found.position + 1) +
      ": the contributions sum to " +
      sign(found.sum) +
      "; the model's logit of " +
      of +
      " is " +
      sign(found.logit) +
      ". The scale of the final norm is fixed, so the bars decompose the logit; they do " +
      "not show the effect of an ablation." +
      (against === null
        ? " The softmax ignores a constant in all logits, so a single logit has little meaning."
        : "");
  const ranked =
    reading.order === "size"
      ? [...found.parts].sort((a, b) => Math.abs(b.logit) - Math.abs(a.logit))
      : found.parts;
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
          sign(value) +
          " to the logit of " +
          of +
          " at position " +
          (found.position + 1) +
          ", on this sequence",
      },
      el("td", { textContent: name }),
      el(
        "td",
        { className: "lens-bars" },
        className ? "" : signedBar(value, low, high, "lens-bar"),
      ),
      el("td", { className: "lens-number", textContent: sign(value) }),
    );
  body.replaceChildren(
    ...ranked.map((part) => line(part.name, part.logit, "")),
    line("sum", found.sum, "lens-sum"),
  );
}
