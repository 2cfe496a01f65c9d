// Sign-in.
import { Button } from "../shared/components/buttons.js";
import { html, signal } from "../vendor/preact.js";
import { baseUrl, errorMessage, request } from "../shared/api.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatMessage } from "../shared/format.js";
import { isActive, Job } from "../shared/job.js";
import { store } from "../shared/store.js";
import { account, runHubJob, session } from "./state.js";

const accountJob = new Job();
const sessionError = signal("");
const TOKENS_URL = "https://huggingface.co/settings/tokens";
const READ_ONLY = "; it is read-only. Publishing needs a token with write access.";

export async function loadSession() {
  try {
    session.value = await request("hub/session", { owner: store.owner.value });
    sessionError.value = "";
  } catch (error) {
    sessionError.value = formatMessage(errorMessage(error));
  }
}

export async function verifyToken() {
  account.value = await runHubJob(accountJob, { kind: "account" });
}

/** Describe how the user signs in, and whether the user has. Backticks mark a command. */
export function describeSession({ method, signed_in: isSignedIn, name }, holder, hasToken) {
  const access =
    holder && `Token of ${holder.name}` + (holder.writes ? "; it has write access." : READ_ONLY);
  const ofMachine = isSignedIn
    ? `This machine is signed in to the Hugging Face Hub${holder ? " as " + holder.name : ""}. ` +
      "You can enter another token:"
    : "This machine is not signed in to the Hugging Face Hub: run `hf auth login`, or enter a " +
      "token with write access.";
  const texts = {
    oauth: isSignedIn
      ? `Signed in as ${name || "you"}.`
      : "Sign in to publish on the Hugging Face Hub; browsing and importing need no account.",
    none:
      "This Space has no sign-in, so it cannot publish on the Hugging Face Hub. Download your " +
      "checkpoints in the Train tab, or duplicate the Space.",
    machine: holder && hasToken ? access : ofMachine,
    typed:
      access ||
      "To publish on the Hugging Face Hub, enter a token with write access. It is used for the " +
        "operations that you start, and not stored.",
  };
  return texts[method] || "Checking sign-in…";
}

const formatCommands = (text) =>
  text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

const RESTART_NOTICE =
  " A restart of this Space deletes all runs: publish the models that you want to keep, or " +
  "download them in the Train tab.";

/** The link that signs in or out. A frame cannot show the pages of Hugging Face. */
function SignIn() {
  const isSignedIn = session.value.signed_in,
    url = new URL(isSignedIn ? "../logout" : "../login/huggingface", baseUrl);
  url.searchParams.set("_target_url", location.pathname + location.search);
  return html`<a
    class="pg-button sign-in"
    href=${url.href}
    target=${window.top === window ? undefined : "_blank"}
    >${isSignedIn ? "Sign out" : "Sign in with Hugging Face"}</a
  >`;
}

export function Account() {
  const { method, lasting: isLasting } = session.value,
    hasField = method === "machine" || method === "typed",
    job = accountJob.state.value,
    text = isActive(job)
      ? job.message
      : describeSession(session.value, account.value, Boolean(store.hubToken.value.trim())) +
        (isLasting ? "" : RESTART_NOTICE);
  const onInput = (event) => {
    store.hubToken.value = event.currentTarget.value;
    account.value = null;
    accountJob.reset();
  };
  return html`<div class="pg-row account">
    ${method === "oauth" && html`<${SignIn} />`}
    <span class="session-text" role="status">${formatCommands(text)}</span>
    ${
      hasField &&
      html`<label>
        Token
        <input
          class="token"
          type="password"
          autocomplete="off"
          spellcheck=${false}
          placeholder="hf_…"
          title="Used for the operations that you start, and not stored"
          value=${store.hubToken.value}
          onInput=${onInput}
        />
      </label>`
    }
    ${
      hasField &&
      !account.value &&
      html`<${Button} class="check" onClick=${verifyToken}>Check<//>
        <a href=${TOKENS_URL} target="_blank" rel="noopener">Get a token</a>`
    }
    <${StatusMessage}
      kind="error"
      text=${sessionError.value || (job.status === "failed" ? job.message : "")}
    />
  </div>`;
}
