// Sign-in.
import { request } from "../shared/api.js";
import { setMessage } from "../shared/common.js";
import { setVisible } from "../shared/dom.js";
import { errorText, runHubTask } from "./jobs.js";
import { renderModelSelect, suggestRepo } from "./local_models.js";
import { state } from "./state.js";
import { $ } from "./view.js";

export async function loadSession() {
  try {
    state.session = await request("hub/session", { owner: state.owner });
  } catch (error) {
    setMessage($(".publish-note"), errorText(error), "error");
    return;
  }
  setVisible($(".token-label"), ["machine", "typed"].includes(state.session.way));
  setVisible(
    $(".check"),
    ["machine", "typed"].includes(state.session.way) && state.session.signed_in && !state.account,
  );
  renderSession();
  renderModelSelect();
}
function renderSession() {
  const access =
    state.account &&
    "Token of " +
      state.account.name +
      (state.account.writes
        ? "; it has write access."
        : "; it is read-only. Publishing needs a token with write access.");
  const ofMachine = state.session.signed_in
    ? "This machine is signed in to the Hub" +
      (state.account ? " as " + state.account.name : "") +
      ". You can enter another token:"
    : "This machine is not signed in to the Hub: run hf auth login, or enter a token with " +
      "write access.";
  const words = {
    oauth: state.session.signed_in
      ? "Signed in as " + (state.session.name || "you") + "."
      : "Sign in above to publish; browsing and importing need no account.",
    none:
      "This Space has no sign-in, so it cannot publish. Download your checkpoints in the Train " +
      "tab, or duplicate the Space.",
    machine: state.account && $(".token").value.trim() ? access : ofMachine,
    typed: state.account
      ? access
      : "To publish, enter a token with write access. It is used for the operations that you " +
        "start, and not stored.",
  };
  const notice = state.session.lasting
    ? ""
    : " A restart of this Space deletes all runs: publish the models that you want to keep, or " +
      "download them in the Train tab.";
  $(".who").textContent = (words[state.session.way] || "") + notice;
}
export async function verifyToken() {
  try {
    state.account = await runHubTask({ kind: "account" }, (message) => {
      $(".who").textContent = message;
    });
    setMessage($(".publish-note"), "");
  } catch (error) {
    state.account = null;
    setMessage($(".publish-note"), errorText(error), "error");
  }
  renderSession();
  setVisible($(".check"), !state.account);
  suggestRepo();
}

export function initAccount() {
  $(".check").addEventListener("click", verifyToken);
  $(".token").addEventListener("input", () => {
    state.account = null;
    setVisible($(".check"), true);
    renderModelSelect();
  });
}
