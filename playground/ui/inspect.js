// The Inspect tab: a model, a training step, an input sequence, and one view of them at a time.
// The views are in the files after this one. Each view requests its data from the server and draws
// the response. The server computes every number from the model.
const root = $(".inspect"),
  VIEWS = { __proto__: null }; // no prototype: a link may contain any view name
const state = { subject: "", step: null, text: "3 1 4 1 5", view: "attention" };
const queryView = (view, selector) => VIEWS[view].box.querySelector(selector);
let owner = "",
  runs = [],
  checkpoints = [],
  isStarted = false,
  lastRequestId = 0,
  weightSteps = [],
  resultByView = {}; // view -> its latest data

// ---------------------------------------------------------------- requests
const pendingViews = new Set(),
  SLOW_VIEWS = ["heads", "heads-over-training", "away"]; // views computed on hundreds of sequences
let refreshTimer = null;
// Request a view again after a short delay, so that several keystrokes cause one request.
function scheduleRefresh(view = state.view, delayMs = 40) {
  pendingViews.add(view);
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(() => {
    const views = [...pendingViews];
    pendingViews.clear();
    views.forEach(loadView);
  }, delayMs);
}
async function requestView(view, options, extra = {}) {
  const payload = {
    owner,
    subject: state.subject,
    text: state.text,
    view,
    options,
    ...(state.step === null ? {} : { step: state.step }),
    ...extra,
  };
  try {
    return await request("inspect/view", payload, SLOW_VIEWS.includes(view) ? 300000 : 20000);
  } catch (error) {
    return {
      error: error.name === "TimeoutError" ? "the request timed out; try again" : NO_RESPONSE,
      again: !SLOW_VIEWS.includes(view),
    };
  }
}
async function loadView(view) {
  if (!state.subject || !VIEWS[view]) return;
  const requestId = ++lastRequestId,
    spec = VIEWS[view];
  spec.requestId = requestId;
  $(".stage").classList.add("waiting");
  const data = await requestWithRetry(
    () => requestView(spec.request || view, spec.options ? spec.options() : {}),
    () => spec.requestId === requestId,
    (error) => {
      if (view === state.view) showError(error, true);
    },
  );
  if (spec.requestId !== requestId) return; // a newer request is pending
  if (view === state.view) $(".stage").classList.remove("waiting");
  if (syncSuggestion($(".sequence"), data.question)) {
    state.text = $(".sequence").value;
    saveState();
    scheduleRefresh(view, 0);
    return;
  }
  if (data.error) {
    if (view === state.view) showError(data.error, data.again);
    return;
  } // the last result stays visible
  if (view === state.view) showError("");
  resultByView[view] = data;
  renderAnswer(data);
  redrawView(view);
  root.dataset.drawn = view + " " + state.text; // tests and benchmarks wait for this attribute
}
function showError(text, isTransient = false) {
  // a transient error is not caused by the sequence
  $(".problem").textContent = formatMessage(text);
  if (text && !isTransient) $(".sequence").setAttribute("aria-invalid", "true");
  else $(".sequence").removeAttribute("aria-invalid");
}
function redrawView(view = state.view) {
  if (resultByView[view] && VIEWS[view].box && VIEWS[view].box.offsetParent)
    VIEWS[view].draw(resultByView[view]);
}

// Show the generated tokens next to the sequence.
function renderAnswer(data) {
  if (!data.written) return;
  $(".answer").replaceChildren(
    ...diffTokens(data.written, data.answer),
    isCorrect(data)
      ? el("span", { className: "ok", textContent: "✓", title: "correct, including EOS" })
      : "",
  );
  $(".note").textContent = data.note || "";
}
const isCorrect = ({ written, answer }) => Boolean(answer) && written.join() === answer.join();
// The generated tokens compared with the target, which is null if it is unknown. A missing token is
// shown as _.
function diffTokens(written, answer) {
  const symbols = (names) => names.filter((name) => name !== "EOS"),
    prediction = symbols(written),
    target = symbols(answer || written);
  return Array.from({ length: Math.max(prediction.length, target.length) }, (_, i) => {
    const wrong = prediction[i] !== target[i],
      symbol = el("span", { className: wrong ? "wrong" : "", textContent: prediction[i] ?? "_" });
    if (wrong) symbol.title = target[i] === undefined ? "extra token" : "target: " + target[i];
    return [symbol, " "];
  }).flat();
}

// ---------------------------------------------------------------- views
function buildViews() {
  for (const [name, spec] of Object.entries(VIEWS)) {
    const tab = el("button", { type: "button", textContent: spec.title, id: "view-" + name });
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => selectView(name));
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
        names = Object.keys(VIEWS);
      if (!by) return;
      event.preventDefault();
      const next = names[(names.indexOf(name) + by + names.length) % names.length];
      selectView(next);
      VIEWS[next].tab.focus();
    });
    $(".views").append(tab);
    spec.tab = tab;
    spec.box = el("div", { className: "of-" + name, hidden: true });
    spec.box.setAttribute("role", "tabpanel");
    spec.box.setAttribute("aria-labelledby", "view-" + name);
    $(".stage").append(spec.box);
    spec.build(spec.box);
  }
}
function selectView(name) {
  if (!VIEWS[name]) name = "attention";
  state.view = name;
  for (const [each, spec] of Object.entries(VIEWS)) {
    spec.tab.setAttribute("aria-selected", String(each === name));
    spec.tab.tabIndex = each === name ? 0 : -1;
    spec.box.hidden = each !== name;
  }
  $(".explain").textContent = VIEWS[name].explain;
  showError("");
  $(".stage").classList.remove("waiting");
  saveState();
  redrawView(name);
  scheduleRefresh(name, 0);
}

// ---------------------------------------------------------------- the model
async function loadModels() {
  let response;
  try {
    response = await request("runs/list", { owner });
  } catch (error) {
    return;
  }
  runs = response.runs.filter((run) => !run.deleted);
  checkpoints = response.checkpoints;
  const select = $(".subject"),
    foreign =
      state.subject && ![...runs, ...checkpoints].some((each) => each.subject === state.subject);
  const signature = JSON.stringify([
    runs.map((r) => [r.subject, r.name]),
    checkpoints.map((c) => c.subject),
    foreign && state.subject,
  ]);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  const group = (label, options) => {
    const box = el("optgroup", { label });
    box.append(...options);
    return box;
  };
  select.replaceChildren(
    ...[
      foreign && group("Shared with you", [new Option("a shared run", state.subject)]),
      runs.length &&
        group(
          "Your runs",
          runs.map((r) => new Option(r.name, r.subject)),
        ),
      checkpoints.length &&
        group(
          "Included checkpoints",
          checkpoints.map((c) => new Option(c.name + ": " + c.about, c.subject)),
        ),
    ].filter(Boolean),
  );
  if (!state.subject)
    selectModel(
      checkpoints.some((c) => c.subject === "checkpoint:reverse")
        ? "checkpoint:reverse"
        : (runs[0] || checkpoints[0] || { subject: "" }).subject,
    );
  select.value = state.subject;
}
function selectModel(subject, step = null) {
  state.subject = subject;
  state.step = step;
  resultByView = {};
  weightSteps = [];
  $(".subject").value = subject;
  for (const spec of Object.values(VIEWS)) if (spec.forget) spec.forget();
  saveState();
  loadSteps();
  scheduleRefresh(state.view, 0);
}
// The steps of a run with stored weights.
async function loadSteps() {
  const subject = state.subject,
    isRun = /^(run|watch):/.test(subject);
  $(".at-step").hidden = !isRun;
  if (!isRun) return;
  let response;
  try {
    response = await request("runs/poll", {
      owner,
      subject,
      n_points: 0,
      series_id: -1,
      snapshot_version: 0,
    });
  } catch (error) {
    return;
  }
  if (subject !== state.subject) return;
  weightSteps = response.weight_steps || [];
  $(".at-step").hidden = weightSteps.length < 2;
  $(".step").max = Math.max(1, weightSteps.length - 1);
  $(".step").value =
    state.step === null
      ? weightSteps.length - 1
      : Math.max(
          0,
          weightSteps.findIndex((each) => each >= state.step),
        );
  renderStepLabel(response.step);
}
function renderStepLabel(last) {
  $(".step-words").textContent = weightSteps.length
    ? (state.step === null ? "latest, " : "") +
      (state.step === null ? weightSteps[weightSteps.length - 1] : state.step).toLocaleString("en")
    : "";
}

// ---------------------------------------------------------------- links and export
function saveState() {
  try {
    localStorage.setItem(
      "transformer-playground-inspect",
      JSON.stringify({
        subject: state.subject,
        step: state.step,
        text: state.text,
        view: state.view,
      }),
    );
  } catch (error) {
    /* storage is not available */
  }
}
async function buildViewLink() {
  const linkState = {
    subject: state.subject,
    step: state.step,
    text: state.text,
    view: state.view,
    options: VIEWS[state.view].options ? VIEWS[state.view].options() : {},
  };
  if (linkState.subject.startsWith("run:")) {
    let response = {};
    try {
      response = await request("runs/details", { owner, subject: linkState.subject });
    } catch (error) {
      /* then only this browser can open the link */
    }
    // A share id gives read-only access.
    if (response.share_id) linkState.subject = "watch:" + response.share_id;
  }
  return buildLink("inspect", linkState);
}
$(".link").addEventListener("click", async () =>
  copyText(await buildViewLink(), $(".link"), "The link"),
);
// HTML that embeds this view in another site (embedding.py).
async function copyEmbedCode() {
  const title = "Transformer Playground: " + VIEWS[state.view].title;
  const code =
    `<iframe src="${await buildViewLink()}&amp;embed=inspect" title="${title}" ` +
    `width="100%" height="600" style="border: 0" loading="lazy"></iframe>`;
  await copyText(code, $(".export summary"), "The embed code");
}

// Draw all elements of the view with the class `picture` into one image, from top to bottom.
function renderPicture() {
  const parts = [...VIEWS[state.view].box.querySelectorAll(".picture")].filter(
    (part) => part.offsetParent && part.clientWidth,
  );
  const scale = 2,
    gap = 18,
    width = Math.max(320, ...parts.map((part) => part.clientWidth)) + 40;
  const height = 64 + parts.reduce((sum, part) => sum + part.clientHeight + gap, 0) + 10;
  const canvas = el("canvas", { width: width * scale, height: height * scale }),
    c = canvas.getContext("2d");
  c.scale(scale, scale);
  c.fillStyle =
    getComputedStyle(document.body).getPropertyValue("--body-background-fill") || "#fff";
  c.fillRect(0, 0, width, height);
  c.fillStyle = cssVariable("--body-text-color");
  c.font = "600 15px " + cssVariable("--font");
  c.textBaseline = "top";
  c.fillText(VIEWS[state.view].title, 20, 16);
  c.font = "12px " + cssVariable("--font");
  c.fillStyle = cssVariable("--pg-quiet-text");
  c.fillText(
    ($(".subject").selectedOptions[0] || { text: "" }).text +
      (resultByView[state.view] && resultByView[state.view].step !== undefined
        ? " · step " + resultByView[state.view].step
        : "") +
      " · " +
      state.text,
    20,
    38,
  );
  let y = 64;
  for (const part of parts) {
    if (part.tagName === "CANVAS") c.drawImage(part, 20, y, part.clientWidth, part.clientHeight);
    else {
      const from = part.getBoundingClientRect();
      for (const cell of part.querySelectorAll("th, td")) {
        const box = cell.getBoundingClientRect(),
          style = getComputedStyle(cell),
          x = 20 + box.left - from.left,
          top = y + box.top - from.top;
        if (style.backgroundColor !== "rgba(0, 0, 0, 0)") {
          c.fillStyle = style.backgroundColor;
          c.fillRect(x, top, box.width, box.height);
        }
        c.font = style.fontWeight + " " + style.fontSize + " " + style.fontFamily;
        c.fillStyle = style.color;
        c.textBaseline = "middle";
        const right = style.textAlign === "right" || style.textAlign === "end";
        c.textAlign = right ? "right" : style.textAlign === "center" ? "center" : "left";
        c.fillText(
          cell.innerText.trim().split("\n")[0].slice(0, 120),
          right
            ? x + box.width - parseFloat(style.paddingRight)
            : c.textAlign === "center"
              ? x + box.width / 2
              : x + parseFloat(style.paddingLeft),
          top + box.height / 2,
        );
      }
      c.textAlign = "left";
      for (const bar of part.querySelectorAll(".bar")) {
        const box = bar.getBoundingClientRect();
        c.fillStyle = getComputedStyle(bar).backgroundColor;
        c.fillRect(20 + box.left - from.left, y + box.top - from.top, box.width, box.height);
      }
    }
    y += part.clientHeight + gap;
  }
  return canvas;
}
// Figures for print are drawn by the server.
async function exportFigures(name) {
  const label = $(".export summary");
  label.textContent = "Drawing";
  let response;
  try {
    response = await request(
      "inspect/figures",
      {
        owner,
        subject: state.subject,
        text: state.text,
        ...(state.step === null ? {} : { step: state.step }),
      },
      300000,
    );
  } catch (error) {
    response = { error: NO_RESPONSE };
  }
  label.textContent = "Export";
  if (response.error) {
    showError(response.error);
    return;
  }
  downloadBlob(
    name.replace(state.view, "figures") + ".zip",
    new Blob([Uint8Array.from(atob(response.zip), (c) => c.charCodeAt(0))], {
      type: "application/zip",
    }),
  );
}
$(".export").addEventListener("click", (event) => {
  const as = event.target.dataset.as,
    data = resultByView[state.view],
    spec = VIEWS[state.view];
  if (as === "frame") {
    $(".export").open = false;
    copyEmbedCode();
    return;
  }
  if (!as || !data) return;
  $(".export").open = false;
  const name =
    "inspect-" + state.view + "-" + state.text.replace(/[^A-Za-z0-9]+/g, "").slice(0, 20);
  if (as === "figures") {
    exportFigures(name);
    return;
  }
  if (as === "png") renderPicture().toBlob((blob) => downloadBlob(name + ".png", blob));
  else if (as === "json")
    downloadBlob(
      name + ".json",
      new Blob(
        [
          JSON.stringify(
            {
              model: ($(".subject").selectedOptions[0] || {}).text,
              text: state.text,
              view: state.view,
              options: spec.options ? spec.options() : {},
              ...(spec.unpacked ? spec.unpacked(data) : data),
            },
            null,
            1,
          ),
        ],
        { type: "application/json" },
      ),
    );
  else
    downloadBlob(
      name + ".csv",
      new Blob([toCsv(spec.rows ? spec.rows(data) : [])], { type: "text/csv" }),
    );
});

// ---------------------------------------------------------------- what a person does
let debounceTimer;
$(".sequence").addEventListener("input", () => {
  clearTimeout(debounceTimer);
  debounceTimer = setTimeout(() => {
    state.text = $(".sequence").value;
    saveState();
    scheduleRefresh(state.view, 0);
  }, 20);
});
$(".subject").addEventListener("change", (event) => selectModel(event.target.value));
$(".step").addEventListener("input", (event) => {
  const at = +event.target.value;
  state.step = at >= weightSteps.length - 1 ? null : weightSteps[at];
  renderStepLabel();
  saveState();
  scheduleRefresh();
});
onResizeOrThemeChange(() => redrawView());

// ---------------------------------------------------------------- start
function mount() {
  let value = {};
  try {
    value = JSON.parse(props.value) || {};
  } catch (error) {
    return;
  }
  owner = value.owner || "";
  let linkState = {};
  try {
    linkState =
      JSON.parse(value.link || "null") ||
      JSON.parse(localStorage.getItem("transformer-playground-inspect") || "{}");
  } catch (error) {
    /* the stored value is malformed */
  }
  if (!isStarted) {
    if (typeof linkState.subject === "string") state.subject = linkState.subject;
    if (Number.isInteger(linkState.step)) state.step = linkState.step;
    if (typeof linkState.text === "string") state.text = linkState.text.slice(0, 400);
    if (typeof linkState.view === "string" && VIEWS[linkState.view]) state.view = linkState.view;
    if (linkState.options && VIEWS[state.view].take)
      try {
        VIEWS[state.view].take(linkState.options);
      } catch (error) {
        /* the link is malformed */
      }
  }
  $(".sequence").value = state.text;
}
async function init() {
  isStarted = true;
  const sent = takeHandOff("Inspect");
  if (sent) {
    state.subject = sent.subject;
    state.step = sent.step ?? null;
  }
  const remembered = state.subject;
  await loadModels();
  if (
    remembered &&
    !/^watch:/.test(remembered) &&
    ![...runs, ...checkpoints].some((each) => each.subject === remembered)
  ) {
    state.subject = "";
    $(".subject").dataset.signature = "";
    await loadModels();
  }
  loadSteps();
  selectView(state.view);
}
async function pollLoop() {
  for (let round = 0; element.isConnected || round < 5; round++) {
    await sleepWhileHidden(300);
    if (
      !(owner || document.documentElement.dataset.embed) ||
      !element.offsetParent ||
      document.hidden
    )
      continue;
    if (!isStarted) {
      await init();
      continue;
    }
    if (round % 12 === 0) {
      await loadModels();
      const run = runs.find((each) => each.subject === state.subject);
      if (run && run.status === "training") {
        await loadSteps();
        if (state.step === null && !VIEWS[state.view].slow) scheduleRefresh();
      }
    }
  }
}
// The Train tab can send a model here before this tab is initialized.
function onNavigate() {
  const handOff = isStarted && takeHandOff("Inspect");
  if (handOff) loadModels().then(() => selectModel(handOff.subject, handOff.step ?? null));
}
addViewListener(window, "playground-Inspect", onNavigate);
