// A class: pupils send their guesses without a name, and the page of the teacher draws all of them.
import { html, signal, useEffect, useState } from "../vendor/preact.js";
import { requestOrError } from "../shared/api.js";
import { Button, ConfirmButton, CopyField } from "../shared/components/buttons.js";
import { StatusMessage } from "../shared/components/status_message.js";
import { formatCount, formatMessage } from "../shared/format.js";
import { poller } from "../shared/poller.js";
import { store } from "../shared/store.js";
import { fillGaps } from "./guess.js";
import { lessonName, saveLocal, storedState } from "./state.js";

const POLL_MS = 1000;
const JOIN_MS = 5000; // until a pupil's page sees that the class has ended
const SEND_DELAY_MS = 400; // after the last change of a guess
const ENDED = "the class was closed, or its seven days are over";
const NO_GUESSES = { n_pupils: 0, n_guesses: {}, guesses: [], lesson: "" };

/** The class of this browser: {code, isTeacher}; null without one. */
export const classroom = signal(/** @type {any} */ (null));
/** What the teacher's page received last, and the lesson of its guesses. */
const received = signal(/** @type {any} */ (NO_GUESSES));
/** Whether the server knew the class. */
let isMember = false;
const error = signal("");
/** The lessons whose guess the class has. */
const sent = signal(/** @type {string[]} */ ([]));

const send = (name, fields = {}) =>
  requestOrError("class/" + name, {
    owner: store.owner.value,
    code: classroom.value?.code,
    ...fields,
  });

function setClass(value, message = "") {
  classroom.value = value;
  isMember = false;
  received.value = NO_GUESSES;
  sent.value = [];
  error.value = formatMessage(message);
  saveLocal("class", value);
}

/** Leave a class that the server does not have, or no longer. */
function checkResponse(response) {
  const isMissing = response.code === "not-found";
  if (!isMissing) error.value = formatMessage(response.error);
  else setClass(null, isMember ? ENDED : "no class has this code: ask your teacher for the link");
  isMember = !isMissing && (isMember || !response.error);
}

/** The class of before a reload; the page forgets one that it could not join. */
export function resumeClass() {
  classroom.value = storedState.class ?? null;
  isMember = Boolean(classroom.value);
}

export async function joinClass(/** @type {string} */ link) {
  const code = link.toUpperCase();
  if (code === classroom.value?.code) return;
  setClass({ code, isTeacher: false });
  checkResponse(await send("join"));
}

async function openClass() {
  const response = await send("open");
  if (response.error) error.value = formatMessage(response.error);
  else setClass({ code: response.code, isTeacher: true });
}

async function closeClass() {
  const response = await send("close");
  if (response.error) checkResponse(response);
  else setClass(null);
}

let timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);

/** Send a guess to the class after its last change; it replaces the one before. */
export function sendGuess({ kind, name }, guess) {
  clearTimeout(timer);
  if (!classroom.value || classroom.value.isTeacher) return;
  timer = setTimeout(async () => {
    const points = kind === "curve" ? fillGaps(guess) : guess,
      response = await send("guess", { lesson: name, guess: points });
    checkResponse(response);
    if (!response.error) sent.value = [...sent.value, name];
  }, SEND_DELAY_MS);
}

/** Whether the class has the pupil's guess in a lesson. */
export const isGuessSent = (name) => sent.value.includes(name);

/** The guesses of the class in a lesson, on the page of its teacher. */
export const cloudOf = (name) => (received.value.lesson === name ? received.value.guesses : []);

/** Poll a route of the class while the tab is open. */
function usePoll(route, intervalMs, onData) {
  useEffect(() => {
    const subscription = poller.subscribe({
      route,
      intervalMs,
      isVisible: () => store.tab.value === "learn",
      payload: () => ({
        owner: store.owner.value,
        code: classroom.value.code,
        lesson: lessonName.value,
      }),
      onData,
    });
    return subscription.unsubscribe;
  }, []);
}

const classLink = (code) => `${location.origin}${location.pathname}?class=${code}`;

/** A link as a QR code, whose module loads when it is first drawn. */
function QrCode({ text }) {
  const [rows, setRows] = useState(/** @type {boolean[][]} */ ([]));
  useEffect(() => {
    import("../vendor/qr.js").then(({ encodeQR }) => setRows(encodeQR(text, "raw", { border: 2 })));
  }, [text]);
  const path = rows.map((row, y) => row.map((dark, x) => (dark ? `M${x},${y}h1v1h-1z` : "")));
  return html`<svg
    class="qr"
    role="img"
    aria-label=${"QR code of " + text}
    viewBox=${`0 0 ${rows.length} ${rows.length}`}
  >
    <path d=${path.flat().join("")} />
  </svg>`;
}

function TeacherBar({ code }) {
  usePoll("class/poll", POLL_MS, (response) => {
    if (response.error) checkResponse(response);
    else received.value = response;
  });
  const { n_pupils: nPupils, n_guesses: nGuesses } = received.value;
  return html`<span>
    Class <b>${code}</b>: ${formatCount(nPupils, "pupil")} joined,${" "}
    ${formatCount(nGuesses[lessonName.value] ?? 0, "guess", "guesses")} in this lesson
  </span>`;
}

/** The class of a pupil, who joins it again and again, and so sees its end. */
function PupilBar({ code }) {
  usePoll("class/join", JOIN_MS, checkResponse);
  return html`<span> Class <b>${code}</b>: the teacher sees your guesses, without a name. </span>
    <${Button} onClick=${() => setClass(null)}>Leave<//>`;
}

/** One line above every part of the tab: the class, and for its teacher how many take part. */
export function ClassBar() {
  const { code, isTeacher } = classroom.value ?? {};
  return html`${
      code &&
      html`<p class="pg-row class-bar">
        ${isTeacher ? html`<${TeacherBar} code=${code} />` : html`<${PupilBar} code=${code} />`}
      </p>`
    } <${StatusMessage} class="learn-note" kind="error" text=${error.value} />`;
}

/** For teachers: open a class, its link and its QR code. */
export function ClassForm() {
  const { code, isTeacher } = classroom.value ?? {};
  if (!isTeacher)
    return html`<h3>Your class</h3>
      <p>
        Pupils open a link and draw their guesses; your lesson draws all of them. The server stores
        them for 7 days, without names.
      </p>
      <p class="pg-buttons">
        <${Button} class="primary open-class" onClick=${openClass}>Open a class<//>
      </p>`;
  const link = classLink(code);
  return html`<h3>Your class: ${code}</h3>
    <${CopyField} label="Link for pupils" value=${link} class="class-link" />
    <${QrCode} text=${link} />
    <p>Open a lesson here: its chart draws the guesses as they arrive.</p>
    <p class="pg-buttons">
      <${ConfirmButton}
        label="Close the class"
        question="Close the class and delete its guesses?"
        confirmLabel="Close"
        onConfirm=${closeClass}
      />
    </p>`;
}
