// Facts on architectures.
import { request } from "../shared/api.js";
import { el, visuallyHidden } from "../shared/dom.js";
import { state } from "./state.js";

const FACT_COLUMNS = [
  ["examples", "examples"],
  ["direction", "attention"],
  ["generates", "generation"],
  ["objective", "objective"],
  ["cross_attention", "cross-attention"],
  ["best_for", "best for"],
];
export async function renderFacts() {
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
  state.architecturesView.facts.replaceChildren(
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
