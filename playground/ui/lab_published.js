// ---------------------------------------------------------------- replications of published claims
const GOING = ["waiting", "starting", "training", "stopping", "going"];
const verdicts = new Map(); // replication key -> outcome
let claims = [],
  claimsAt = 0,
  askingClaims = false;

function buildPublished() {
  $(".claims thead").append(
    headRow([
      ["claim", ""],
      ["setting", ""],
      ["published", ""],
      ["reproduced", ""],
      ["", "", "", "outcome"],
      ["", "", "", "actions"],
    ]),
  );
}
const claimsDue = () =>
  claims.some((each) => GOING.includes(each.state)) && Date.now() - claimsAt > 2500;
async function askClaims() {
  if (askingClaims) return;
  askingClaims = true;
  const reply = await ask("claims");
  askingClaims = false;
  claimsAt = Date.now();
  if (reply.error) {
    note($(".published-note"), told(reply.error), "error");
    return;
  }
  claims = reply.claims;
  drawClaims();
  for (const each of claims) judge(each);
}
const tried = (each) => [each.name, each.run || each.experiment, each.step].join();
async function judge(each) {
  if (each.state !== "done" || verdicts.has(tried(each))) return;
  verdicts.set(tried(each), null); // requested
  const reply = await persist(
    () => ask("verdict", { name: each.name }, 200000),
    () => element.isConnected,
    () => {},
  );
  if (reply.lost || reply.again) verdicts.delete(tried(each));
  else verdicts.set(tried(each), reply);
  drawClaims();
}
function drawClaims() {
  const rows = claims.flatMap((each) => [
    { each, more: false },
    { each, more: true },
  ]);
  update(
    $(".claims tbody"),
    rows,
    ({ each, more }) => each.name + (more ? "/more" : ""),
    ({ each, more }) => (more ? newMore(each) : newClaim(each)),
    (row, { each, more }) => (more ? null : fillClaim(row, each)),
  );
}
function newClaim(each) {
  const button = (text, className, act) => {
    const made = el("button", {
      type: "button",
      className: "quiet " + className,
      textContent: text,
    });
    made.addEventListener("click", act);
    return made;
  };
  const details = button("Details", "details", () => {
    const more = $(".claims tr[data-key='" + each.name + "/more']");
    more.hidden = !more.hidden;
    details.setAttribute("aria-expanded", String(!more.hidden));
  });
  details.setAttribute("aria-expanded", "false");
  details.setAttribute("aria-label", "Details of: " + each.title);
  const runIt = button("Run", "run-it", async () => {
    runIt.disabled = true;
    const reply = await ask("claim", { name: each.name });
    note($(".published-note"), told(reply.error || ""), "error");
    runIt.disabled = false;
    if (reply.experiment) openExperiment(reply.experiment);
    await askClaims();
  });
  runIt.setAttribute("aria-label", "Run: " + each.title);
  const look = button("Open", "look", () => {
    const now = claims.find((one) => one.name === each.name);
    if (now.experiment) openExperiment(now.experiment, true);
    else goTo("Train", now.run);
  });
  return el(
    "tr",
    { className: "claim" },
    el(
      "td",
      { className: "who" },
      el("span", { className: "name", textContent: each.title }),
      el("span", { className: "what", textContent: each.source }),
    ),
    el(
      "td",
      { className: "setting" },
      el("span", { textContent: each.setting }),
      el("span", {
        className: "what",
        textContent: each.parameters ? each.parameters.toLocaleString("en") + " parameters" : "",
      }),
    ),
    el("td", { className: "told", textContent: each.told }),
    el("td", { className: "ours" }),
    el("td", { className: "verdict" }),
    el("td", { className: "links" }, runIt, look, details),
  );
}
function newMore(each) {
  const copy = el("button", { type: "button", className: "quiet", textContent: "Copy" }),
    code = el("code", { textContent: each.command });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(each.command);
    } catch (error) {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => {
      copy.textContent = "Copy";
    }, 1500);
  });
  const settings = Object.entries(each.settings)
    .map(
      ([name, value]) =>
        name +
        " " +
        (Array.isArray(value)
          ? value.join(", ")
          : value === true
            ? "on"
            : value === false
              ? "off"
              : value),
    )
    .join(" · ");
  const line = (term, ...inside) => [el("dt", { textContent: term }), el("dd", {}, ...inside)];
  return el(
    "tr",
    { className: "more", hidden: true },
    el(
      "td",
      { colSpan: 6 },
      el(
        "dl",
        {},
        ...line("passes when", told(each.rule)),
        ...line(
          "differences",
          el("ul", {}, ...each.differs.map((text) => el("li", { textContent: told(text) }))),
        ),
        ...line("settings", settings + (each.experiment_asked ? "" : " · seed " + each.seed)),
        ...line("command", code, " ", copy),
      ),
    ),
  );
}
function fillClaim(row, each) {
  const found = verdicts.get(tried(each)),
    ran = each.state !== "none";
  row.dataset.state = each.state;
  row.dataset.passed =
    found && found.passed !== null && found.passed !== undefined ? String(found.passed) : "";
  const share = each.steps ? Math.floor((100 * each.step) / each.steps) + " %" : "";
  const how = each.missing
    ? told(each.missing)
    : !ran
      ? "not run yet"
      : each.state === "done"
        ? found === undefined || found === null
          ? "comparing"
          : found.written || told(found.error || found.sentence)
        : each.place
          ? nth(each.place)
          : each.experiment
            ? each.state + ", " + share
            : each.state +
              (each.step
                ? ", step " +
                  each.step.toLocaleString("en") +
                  " of " +
                  each.steps.toLocaleString("en")
                : "") +
              (each.message ? ": " + each.message : "");
  put(row.querySelector(".ours"), how).classList.toggle("nothing", !found || !found.written);
  const passed = found ? found.passed : null;
  put(
    row.querySelector(".verdict"),
    passed === true ? "✓ " + (found.word || "pass") : passed === false ? "✗ fail" : "",
  ).title = found && found.sentence ? found.sentence : "";
  row.querySelector(".verdict").classList.toggle("ok", passed === true);
  row.querySelector(".verdict").classList.toggle("bad", passed === false);
  row.querySelector(".run-it").hidden =
    Boolean(each.missing) ||
    GOING.includes(each.state) ||
    each.state === "done" ||
    each.state === "paused";
  row.querySelector(".look").hidden = !each.run && !each.experiment;
}
