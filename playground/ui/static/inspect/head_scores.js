import { setUpCanvas } from "../shared/canvas.js";
import { cssVariable } from "../shared/palette.js";
import { formatNumber } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { mountMatrix } from "../shared/matrix.js";
import {
  columnValue,
  headHistory,
  headScoresState,
  PATTERN_DESCRIPTIONS,
  PATTERN_STYLES,
  PATTERNS,
} from "./head_roles.js";
import { redrawView } from "./requests.js";
import { describeSample, shadeCell, shortHeadName } from "./slow_views.js";
import { state } from "./state.js";
import { queryView, VIEWS } from "./views.js";

export function renderHeadScores(data) {
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
  if (headScoresState.isDescending) rows.reverse();
  if (headScoresState.isDescending)
    // missing values come last in both orders
    rows.sort(
      (a, b) =>
        (columnValue(a, headScoresState.sort) === null) -
        (columnValue(b, headScoresState.sort) === null),
    );
  for (const th of VIEWS.heads.box.querySelectorAll(".heads-table th")) {
    if (th.dataset.column === headScoresState.sort)
      th.setAttribute("aria-sort", headScoresState.isDescending ? "descending" : "ascending");
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
export function renderHeadHistory() {
  const history = headHistory(),
    canvas = queryView("heads", ".heads-chart");
  if (!history || !canvas.offsetParent) return;
  const head = history.heads.find((each) => each.name === headScoresState.head) || history.heads[0],
    n = history.steps.length - 1,
    current =
      headScoresState.latest &&
      headScoresState.latest.heads.find((each) => each.name === head.name);
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
    [
      headScoresState.historyIndex === null ? null : history.steps[headScoresState.historyIndex],
      "--pg-mark",
    ],
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
  const at = headScoresState.historyIndex === null ? n : headScoresState.historyIndex;
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
    headScoresState.historyIndex === null
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
