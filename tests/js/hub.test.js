import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { settle } from "./support/dom.js";
import { box, fill, mount, responses, sent, serve, submit, waitFor } from "./support/page.js";
import { describeSession } from "../../playground/ui/static/hub/account.js";
import {
  describeEvaluation,
  describeRepo,
  formatRepoAddress,
  loadGallery,
  parseRepoAddress,
} from "../../playground/ui/static/hub/gallery.js";
import {
  describePlan,
  PublishForm,
  suggestName,
} from "../../playground/ui/static/hub/publish_form.js";
import { plan, publishOptions, runHubJob, session } from "../../playground/ui/static/hub/state.js";
import { Job } from "../../playground/ui/static/shared/job.js";
import { store } from "../../playground/ui/static/shared/store.js";
import { html } from "../../playground/ui/static/vendor/preact.js";

const RUN = {
  subject: "run:1",
  origin: "user",
  name: "reverse",
  task: "Reverse 1–10",
  parameters: 171_597,
  status: "training",
  best: null,
};
const MODEL_PLAN = {
  repo: "ada/reverse",
  exists: false,
  private: false,
  parent: "abc",
  changes: [
    { path: "README.md", size: 2000, status: "new" },
    { path: "config.json", size: 1000, status: "same" },
  ],
};
beforeEach(() => {
  serve({
    "jobs/submit": { job: "j" },
  });
});

test("a repository is a name, a name with a revision, or an address", () => {
  assert.deepEqual(parseRepoAddress(" ada/model "), ["ada/model", "main"]);
  assert.deepEqual(parseRepoAddress("ada/model@v1"), ["ada/model", "v1"]);
  const tree = "https://hub.example/ada/model/tree/next?x=1#y";
  assert.deepEqual(parseRepoAddress(tree), ["ada/model", "next"]);
  assert.deepEqual(parseRepoAddress("https://hub.example/ada/model/"), ["ada/model", "main"]);
  assert.deepEqual(parseRepoAddress(""), ["", "main"]);
  for (const address of ["ada/model", "ada/model@v1"]) {
    const [repo, revision] = parseRepoAddress(address);
    assert.equal(formatRepoAddress({ repo, revision }), address);
  }
});

test("the state of sign-in is a sentence", () => {
  const describe = (state, holder = null, hasToken = false) =>
    describeSession({ name: "", signed_in: false, ...state }, holder, hasToken);
  assert.match(describe({ method: "typed" }), /^To publish on the Hugging Face Hub, enter a token/);
  assert.match(describe({ method: "machine" }), /not signed in .*: run `hf auth login`/);
  assert.match(describe({ method: "machine", signed_in: true }, { name: "ada" }), /as ada\./);
  const ada = { name: "ada", writes: true };
  assert.equal(describe({ method: "typed" }, ada, true), "Token of ada; it has write access.");
  assert.match(describe({ method: "machine" }, { name: "ada" }, true), /read-only/);
  assert.equal(describe({ method: "oauth", signed_in: true, name: "ada" }), "Signed in as ada.");
  assert.match(describe({ method: "none" }), /cannot publish/);
  assert.equal(describe({ method: "" }), "Checking sign-in…");
});

test("a plan lists its changes", () => {
  assert.equal(
    describePlan({ plan: MODEL_PLAN, step: 40 }, false),
    "New public repository ada/reverse: step 40, 1 file, 2 KB.",
  );
  assert.equal(
    describePlan({ plan: { ...MODEL_PLAN, exists: true, private: true }, step: 1000 }, true),
    "ada/reverse already exists (private). One commit changes it: step 1,000, 1 file, 2 KB. " +
      "The run continues; its latest checkpoint is published.",
  );
  const same = { ...MODEL_PLAN, changes: [{ path: "a", size: 1, status: "same" }] };
  assert.equal(
    describePlan({ plan: same, step: 40 }, false),
    "ada/reverse already has this checkpoint, step 40.",
  );
  const space = { ...MODEL_PLAN, exists: false };
  assert.match(
    describePlan({ plan: same, space, step: 40 }, false),
    /step 40\. New public Space ada\/reverse: it runs the interactive page\.$/,
  );
  assert.match(
    describePlan({ plan: same, space: { ...same, exists: true, private: true }, step: 40 }, false),
    /The Space ada\/reverse \(private\) already has this page\.$/,
  );
});

test("the suggested name has the task and the size", () => {
  assert.equal(suggestName(RUN), "reverse-10-172k");
});

test("facts and scores of a repository", () => {
  const info = {
    shape: [2, 1, 64],
    task: "Reverse",
    parameters: 1000,
    step: 40,
    seconds: 61,
    device: "CPU",
    resumable: true,
    likes: 1,
  };
  assert.equal(
    describeRepo(info),
    "Reverse · 2 layers × 1 head, width 64 · 1,000 parameters · " +
      "trained 40 steps in 1 min 1 s on CPU · can be trained further · 1 like.",
  );
  assert.match(describeRepo({ ...info, seconds: 0, resumable: false }), /steps · weights only/);
  const measured = { exact_match: 0.5, n: 100 };
  const evaluate = (card) => describeEvaluation({ card, measured, measured_seconds: 2 });
  assert.match(evaluate(null), /no score/);
  assert.match(evaluate({ exact_match: 0.501 }), /^The scores are equal\. .* 2\.0 s\.$/);
  assert.match(evaluate({ exact_match: 0.52 }), /differ/);
});

test("the form selects a model, needs a token and a name, and shows the plan", async () => {
  store.owner.value = "owner";
  session.value = { method: "typed", signed_in: false, name: "", lasting: true };
  store.setModels({ runs: [RUN], checkpoints: [] });
  await mount(html`<${PublishForm} />`);
  assert.equal(publishOptions.value.model, "run:1");
  const preview = () => box.querySelector(".preview-push");
  assert.equal(preview().disabled, true);
  assert.match(box.textContent, /Enter a token above first/);
  store.hubToken.value = "hf_x";
  await settle();
  assert.equal(preview().disabled, false);
  assert.equal(box.querySelector(".repo").placeholder, "you/reverse-10-172k");

  responses["jobs/poll"] = { status: "done", result: { name: "ada", writes: false } };
  await fill(".repo", "ada/reverse");
  responses["jobs/poll"] = {
    status: "done",
    result: { plan: MODEL_PLAN, step: 40, card: "# Card", notes: ["the license stays"] },
  };
  await submit();
  await waitFor(() => box.querySelector(".plan"));
  assert.equal(box.querySelector(".plan-note").textContent, "Note: the license stays.");
  const [, payload] = sent.find(([name]) => name === "jobs/submit");
  assert.deepEqual(
    [payload.kind, payload.subject, payload.request.repo, payload.request.token],
    ["plan", "run:1", "ada/reverse", "hf_x"],
  );
  assert.match(box.querySelector(".plan-summary").textContent, /The run continues/);
  assert.equal(box.querySelector(".card-preview pre").textContent, "# Card");

  await fill(".license", "mit");
  assert.equal(plan.value, null, "the plan was for other choices");
});

test("a Space that lacks the page can be published although the model is there", async () => {
  const same = { ...MODEL_PLAN, changes: [{ path: "a", size: 1, status: "same" }] },
    publishRequest = { subject: "run:1" };
  for (const [space, isOffered] of [
    [null, false],
    [same, false],
    [MODEL_PLAN, true],
  ]) {
    plan.value = { plan: same, space, step: 40, card: "", publishRequest };
    await mount(html`<${PublishForm} />`);
    assert.equal(Boolean(box.querySelector(".publish-button")), isOffered);
  }
  plan.value = null;
});

test("only tasks that need the token send it", async () => {
  store.owner.value = "owner";
  store.hubToken.value = "hf_x";
  responses["jobs/poll"] = { status: "done", result: { models: [] } };
  await loadGallery();
  await runHubJob(new Job(), { kind: "plan" });
  assert.deepEqual(
    sent
      .filter(([name]) => name === "jobs/submit")
      .map(([, task]) => [task.kind, task.request.token]),
    [
      ["gallery", ""],
      ["plan", "hf_x"],
    ],
  );
});
