// The table.
import { navigate } from "../shared/common.js";
import { formatCount, formatNumber } from "../shared/format.js";
import { el, setText } from "../shared/dom.js";
import { formatQueuePosition, formatRange, formatShare, syncRows } from "./elements.js";
import { createHeadRow, currentVariants, overlayInTrain } from "./results.js";
import { state } from "./state.js";

export function renderTable() {
  const { results, lengths } = state.details.results,
    kind = lengths ? "lengths" : "grid";
  if (state.resultsView.head.dataset.kind !== kind) {
    state.resultsView.head.dataset.kind = kind;
    state.resultsView.head.replaceChildren(
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
    state.resultsView.body,
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
        const name = state.resultsView.head.rows[0].cells[at];
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
          ? cell.n + " of " + formatCount(cell.planned, "run") + " done"
          : formatCount(cell.n, "run")) +
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
export function renderUntrainedNote() {
  const { lengths } = state.details.results,
    all = lengths ? lengths.rows.filter((row) => row.untrained) : [];
  const rowsOf = (row) =>
    Object.entries(row.untrained)
      .map(([side, [first, last]]) => (side === "row" ? "" : side + " ") + first + " to " + last)
      .join(", ");
  const tables = all.map((row) => row.label + ", " + rowsOf(row)).join("; ");
  setText(
    state.resultsView.untrained,
    all.length
      ? "Untrained positions, counted from 0: " +
          tables +
          ". Longer sequences use the initial values there."
      : "",
  ).hidden = !all.length;
}
export function renderRuns() {
  const { lines } = state.details;
  setText(state.resultsView.runsWords, "All runs (" + lines.length + ")");
  syncRows(
    state.resultsView.runsBody,
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
