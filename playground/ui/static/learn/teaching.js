// For teachers: links, lesson plans, running a class.
import { formatCount, formatMessage } from "../shared/format.js";
import { el } from "../shared/dom.js";
import { createButton, createParagraph } from "./elements.js";
import { requestLesson } from "./requests.js";
import { state } from "./state.js";
import { $ } from "./view.js";

const LESSON_PLANS = [
  [
    "45 minutes",
    [
      "5 minutes: explain the task; everyone opens the link to lesson 1 and writes down a " +
        "prediction before the measurement",
      "15 minutes: lessons 1 and 2, then lesson 3 with a show of hands before the measurement",
      "15 minutes: Find the bug with a random bug (seed 3), in pairs: which observation " +
        "differs, which bug, which line",
      "10 minutes: the pairs present their evidence; lesson 8 is homework",
    ],
  ],
  [
    "90 minutes",
    [
      "10 minutes: the task, a diagram of the model, and lesson 1",
      "25 minutes: lessons 2 to 4; pupils whose prediction was wrong explain their reasoning",
      "15 minutes: lesson 6, then the Inspect tab: does the head with the largest ablation " +
        "effect have the sharpest attention pattern?",
      "25 minutes: two random bugs, with a different seed for each row of seats; each pair " +
        "presents the diff",
      "15 minutes: lesson 7 with a different position encoding for each row; collect the " +
        "results on the board",
    ],
  ],
];
const buildQueryLink = (query) => location.origin + location.pathname + "?" + query;

function createCopyableLink(query, text) {
  const address = buildQueryLink(query),
    copy = createButton(
      "Copy",
      async () => {
        try {
          await navigator.clipboard.writeText(address);
          copy.textContent = "Copied";
        } catch (error) {
          getSelection().selectAllChildren(link);
          copy.textContent = "Press Ctrl-C";
        }
        setTimeout(() => {
          copy.textContent = "Copy";
        }, 2000);
      },
      "Copy this link",
    );
  const link = el("a", { href: address, textContent: "?" + query });
  return el(
    "li",
    {},
    el("span", { className: "what", textContent: text }),
    el("span", { className: "address" }, link),
    copy,
  );
}
export function buildTeaching() {
  const m = state.catalog.machine,
    list = (items) =>
      el("ul", { className: "plain" }, ...items.map((text) => el("li", { textContent: text })));
  const positions = state.catalog.stops.flatMap((stop) =>
    stop.options
      .filter((option) => option.name === "positions")
      .flatMap((option) => option.choices.map((each) => [stop, each])),
  );
  const response = el("div", { className: "result" }),
    first = el("input", { type: "number", min: 0, max: 999999, value: 0, className: "first" });
  const reveal = createButton("Show the bugs", async () => {
    const reply = await requestLesson("answer-key", {
      first: Math.max(0, Math.floor(+first.value || 0)),
    });
    response.replaceChildren(
      reply.error
        ? createParagraph(formatMessage(reply.error), "problem")
        : el(
            "ul",
            { className: "links-list" },
            ...reply.mysteries.map(([seed, title]) =>
              createCopyableLink("bug=mystery&seed=" + seed, title),
            ),
          ),
    );
  });
  $(".teach").replaceChildren(
    el("h3", { textContent: "Exercises by link" }),
    createParagraph(
      "A link opens this page with an exercise prepared. Nothing trains until the pupil " +
        "presses the button, and the page contains no answers before the measurement. All " +
        "pupils with the same seed in the link train the same model.",
    ),
    ...(/^(localhost|127\.|0\.0\.0\.0|\[?::1?\]?$)/.test(location.hostname)
      ? [
          createParagraph(
            "The address of this page works only on this machine. Open the page with the " +
              "machine's network address before you copy links.",
            "hint",
          ),
        ]
      : []),
    el(
      "ul",
      { className: "links-list" },
      ...state.catalog.stops.map((stop, i) =>
        createCopyableLink("learn=" + stop.name, i + 1 + ". " + stop.title),
      ),
      createCopyableLink("learn=stop-1&seed=7", "Lesson 1 with another seed"),
      createCopyableLink("learn=stop-2&text=2+7+1+8", "Lesson 2 with another input sequence"),
      ...positions.map(([stop, each]) =>
        createCopyableLink("learn=" + stop.name + "&positions=" + each, stop.title + ": " + each),
      ),
    ),
    el("h3", { textContent: "Bugs by link" }),
    el(
      "ul",
      { className: "links-list" },
      createCopyableLink("bug=mystery&seed=3", "A random bug"),
      ...state.catalog.bugs.map((each) => createCopyableLink("bug=" + each.name, each.title)),
      createCopyableLink(
        "bug=causal-mask&steps=120&seed=1",
        "Causal mask, with fewer steps and another seed",
      ),
    ),
    el("h3", { textContent: "Random bugs by seed" }),
    createParagraph("The seed selects the bug. Pupils who open this page can show the list, too."),
    el(
      "p",
      { className: "options" },
      el("label", {}, el("span", { textContent: "From seed" }), first),
      reveal,
    ),
    response,
    ...LESSON_PLANS.flatMap(([title, items]) => [
      el("h3", { textContent: "Lesson plan for " + title }),
      list(items),
    ]),
    el("h3", { textContent: "Run a class on one machine" }),
    list([
      "Start the app with: python app.py --host 0.0.0.0 --port 7860. Everyone opens " +
        "http://ADDRESS:7860, where ADDRESS is the address of that machine. Each browser " +
        "sees only its own runs.",
      "This server trains " +
        formatCount(m.slots, "run") +
        " at a time, at most " +
        m.an_owner +
        " per user, and measures " +
        m.measuring +
        " at a time. Other runs are queued, in a fair order among users. PLAYGROUND_SLOTS " +
        "sets the number of slots; the default is one per core.",
      "A lesson trains one or two runs of 200 steps; a bug trains two small models. On a " +
        "busy machine, let pairs share a browser. A measurement has a time limit of " +
        Math.round(m.timeout_s) +
        " s, and each user can have two at a time.",
      "Later lessons reuse the runs of earlier lessons if they need the same model. The " +
        "browser stores the progress, and the Train tab lists the runs.",
      m.open
        ? "This server accepts connections from other machines."
        : "This server accepts connections only from this machine, because it was started " +
          "without --host. All browsers share one owner.",
    ]),
  );
}
