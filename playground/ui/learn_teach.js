// ---------------------------------------------------------------- for teachers: links, plans, a class on one machine
const PLANS = [
  ["45 minutes", ["5: what the task is; everybody opens the link to stop 1 and writes down a prediction before pressing Measure",
    "15: stops 1 and 2, then stop 3 with a show of hands before anybody measures",
    "15: the mystery of seed 3, in pairs: what do you see, which mistake, which line",
    "10: the pairs say what gave it away; stop 8 is left for home"]],
  ["90 minutes", ["10: the task and the model in one picture, stop 1",
    "25: stops 2 to 4; who predicted wrong says what they thought",
    "15: stop 6, then the Inspect tab on the same model: is the head that was missed the one that looks sharpest?",
    "25: two mysteries, another seed for every row of seats; each pair shows its diff",
    "15: stop 7 with a scheme of positions for every row; the table of results goes on the board"]],
];
const linkTo = (query) => location.origin + location.pathname + "?" + query;

function copyable(query, text) {
  const address = linkTo(query), copy = button("Copy", async () => {
    try { await navigator.clipboard.writeText(address); copy.textContent = "Copied"; } catch (error) { getSelection().selectAllChildren(link); copy.textContent = "Press Ctrl-C"; }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  }, "Copy this link");
  const link = el("a", { href: address, textContent: "?" + query });
  return el("li", {}, el("span", { className: "what", textContent: text }), el("span", { className: "address" }, link), copy);
}
function buildTeach() {
  const m = lessons.machine, list = (items) => el("ul", { className: "plain" }, ...items.map((text) => el("li", { textContent: text })));
  const positions = lessons.stops.flatMap((stop) => stop.options.filter((option) => option.name === "positions").flatMap((option) => option.choices.map((each) => [stop, each])));
  const told = el("div", { className: "told" }), first = el("input", { type: "number", min: 0, max: 999999, value: 0, className: "first" });
  const reveal = button("Show which mistakes these are", async () => {
    const reply = await ask("mysteries", { first: Math.max(0, Math.floor(+first.value || 0)) });
    told.replaceChildren(reply.error ? paragraph(sentenceOf(reply.error), "problem") : el("ul", { className: "links-list" }, ...reply.mysteries.map(([seed, title]) => copyable("bug=mystery&seed=" + seed, title))));
  });
  $(".teach").replaceChildren(
    el("h3", { textContent: "Exercises by link" }),
    paragraph("Each opens this page with the exercise prepared; nothing is trained before somebody presses the button, and no answer is on the page before it was measured. A seed in a link gives the whole class the same model; leave it out or change it, and rows of seats can compare."),
    ...(/^(localhost|127\.|0\.0\.0\.0|\[?::1?\]?$)/.test(location.hostname) ? [paragraph("This page was opened by an address that works on this machine only, and the links begin with it: open the page by the machine's own address first, and copy them there.", "hint")] : []),
    el("ul", { className: "links-list" },
      ...lessons.stops.map((stop, i) => copyable("learn=" + stop.name, i + 1 + ". " + stop.title)),
      copyable("learn=stop-1&seed=7", "Stop 1 with another seed"), copyable("learn=stop-2&text=2+7+1+8", "Stop 2 with a sequence of yours"),
      ...positions.map(([stop, each]) => copyable("learn=" + stop.name + "&positions=" + each, stop.title + ": " + each))),
    el("h3", { textContent: "Mistakes by link" }),
    el("ul", { className: "links-list" }, copyable("bug=mystery&seed=3", "A mystery"), ...lessons.bugs.map((each) => copyable("bug=" + each.name, each.title)), copyable("bug=causal-mask&steps=120&seed=1", "The same, shorter, with another seed")),
    el("h3", { textContent: "Which mystery is which" }),
    paragraph("The seed decides. The list is hidden until you ask for it; a pupil who opens this page can ask as well."),
    el("p", { className: "options" }, el("label", {}, el("span", { textContent: "From seed" }), first), reveal), told,
    ...PLANS.flatMap(([title, items]) => [el("h3", { textContent: "A plan for " + title }), list(items)]),
    el("h3", { textContent: "A class on one machine" }),
    list([
      "Start it with: python app.py --host 0.0.0.0 --port 7860. Everybody opens http://ADDRESS:7860, where ADDRESS is that machine's; every browser then sees its own runs only, and nothing needs to be installed on it.",
      "This server trains " + plural(m.slots, "run") + " at a time, at most " + m.an_owner + " of one visitor, and measures " + m.measuring + " at a time; whoever comes later waits in line, fairly between visitors. PLAYGROUND_SLOTS changes it: one for each core.",
      "A stop trains one or two runs of 200 steps, and a mistake two small copies; on a busy machine let pairs share a browser, or half the class look while the other half measures. A measurement is ended after " + Math.round(m.longest) + " s, and nobody has more than two under way.",
      "Runs that a stop has trained are used again by the later stops that ask about the same model. What a visitor has done stays in the browser, and on the server in the list of the Train tab.",
      m.open ? "This server is open to others." : "This server is open to this machine only: it was started without --host, and all browsers on it are one visitor.",
    ]),
  );
}
