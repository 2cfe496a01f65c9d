// Sizes.
import { formatNumber } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { embeddingsView } from "./embeddings.js";
import { runJob } from "./inference_form.js";
import { createJobRunner } from "./jobs.js";
import { currentModel } from "./selected_model.js";
import { state } from "./state.js";

const SOURCE_LABELS = { here: "this model", counted: "counted here", cited: "cited" };
export function createSizesPanel() {
  const out = el(
      "div",
      { className: "out" },
      el("p", { className: "hint", textContent: "Counting" }),
    ),
    line = createJobRunner("sizes", {
      onStart: () => {
        embeddingsView.parts.sizes.stale = false;
      },
      onFinish: (response) => {
        if (response.status === "done") {
          embeddingsView.sizes = response.result;
          renderSizes();
        }
      },
    });
  return {
    title: "Sizes",
    about: "Parameter counts of this model and of well-known models",
    runner: line,
    out,
    stale: true,
    box: el("div", { className: "part-sizes", hidden: true }, line.line, out),
  };
}
export async function loadSizes() {
  const part = embeddingsView.parts.sizes,
    own = currentModel();
  if (!part.stale || !own || !state.owner || part.runner.busy) return;
  part.stale = false;
  await runJob(part.runner, "model-sizes", {
    parameters: own.parameters,
    name: own.name.slice(0, 80),
  });
}
function renderSizes() {
  const { models } = embeddingsView.sizes,
    logs = models.map((each) => Math.log10(each.parameters)),
    low = Math.floor(Math.min(...logs)),
    high = Math.ceil(Math.max(...logs)),
    times = (x) =>
      (x >= 10 ? Math.round(+x.toPrecision(2)).toLocaleString("en") : formatNumber(x)) + " ×";
  embeddingsView.parts.sizes.out.replaceChildren(
    el("p", {
      className: "fairness",
      textContent:
        "Each line of the scale is a factor of ten. Counted here: built from the published " +
        "configuration, without weights. Cited: as reported by the authors.",
    }),
    el(
      "div",
      { className: "scrolling", tabIndex: 0 },
      el(
        "table",
        { className: "sheet sizes" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...["model", "parameters", "", "relative size", "method", "source"].map((text, i) =>
              i === 2
                ? el(
                    "th",
                    { scope: "col", ariaLabel: "on a scale" },
                    el(
                      "span",
                      { className: "ends" },
                      el("span", {}, "10", el("sup", { textContent: low })),
                      el("span", {}, "10", el("sup", { textContent: high })),
                    ),
                  )
                : el("th", {
                    scope: "col",
                    textContent: text,
                    className: [1, 3].includes(i) ? "number" : "",
                  }),
            ),
          ),
        ),
        el(
          "tbody",
          {},
          ...models.map((each, i) => {
            const dot = el("i");
            dot.style.left = (100 * (logs[i] - low)) / (high - low) + "%";
            return el(
              "tr",
              { className: each.method === "here" ? "own" : "" },
              el(
                "td",
                { className: "who" },
                el("span", { className: "name", textContent: each.name }),
              ),
              el("td", { className: "number", textContent: each.parameters.toLocaleString("en") }),
              el(
                "td",
                {},
                el("span", { className: "decades", style: "--decades:" + (high - low) }, dot),
              ),
              el("td", {
                className: "number",
                textContent: each.ratio === null ? "" : times(each.ratio),
              }),
              el("td", { className: "how", textContent: SOURCE_LABELS[each.method] }),
              el("td", {
                className: "what-of",
                textContent: each.method === "here" ? "" : each.source,
              }),
            );
          }),
        ),
      ),
    ),
  );
}
