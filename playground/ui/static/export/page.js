// The page of an exported model: type an input, switch parts off, see the output change.
import { effect, html, render } from "../vendor/preact.js";
import { formatWholePercent } from "../shared/format.js";
import { Links, STACKS, Stack } from "./diagram.js";
import { SwitchControls } from "../train/diagram/switches.js";
import { data, isRight, measureImportance, measureScore, method, outputTokens } from "./state.js";
import { problem, reference, score, switchedOff, switches, text, type } from "./state.js";
import { typeAnotherExample } from "./state.js";

const Input = () =>
  html`<div class="input">
    <label for="input" title=${data.accepts}>Input: <bdi>${data.accepts}</bdi></label>
    <div class="row">
      <input
        id="input"
        value=${text.value}
        aria-invalid=${String(Boolean(problem.value))}
        aria-describedby="problem"
        autocomplete="off"
        spellcheck=${false}
        onInput=${(event) => type(event.target.value)}
      />
      <button type="button" title="Another unseen input" onClick=${typeAnotherExample}>
        Another
      </button>
    </div>
    <p id="problem" role="status">${problem.value}</p>
  </div>`;

const describeOutput = () =>
  (problem.value ? "Output of the last input" : "Output and probability") +
  (reference.value.isTarget ? "" : ", compared with the whole model’s") +
  (isRight.value ? "" : ": below each wrong token, the right one");

const Output = () =>
  html`<div class=${"output" + (problem.value ? " stale" : "")}>
    <span>${describeOutput()}</span>
    <output for="input">
      ${outputTokens.value.map(
        ({ name, expected, probability, isRight, isEnd }, i) =>
          html`<span
            key=${i}
            class=${"token" + (isRight ? "" : " wrong") + (isEnd ? " end" : "")}
            title="Probability ${formatWholePercent(probability)}"
          >
            <b><bdi>${name}</bdi></b>
            <i><i style=${{ width: `${100 * probability}%` }} /></i>
            <small>${!isRight && html`<bdi>${expected}</bdi>`}</small>
          </span>`,
      )}
    </output>
  </div>`;

const Controls = () =>
  html`<${SwitchControls}
      off=${switchedOff.value}
      nameOf=${switches.nameOf}
      isRight=${isRight.value}
      score=${score.value}
      method=${method.value}
      hasExamples=${true}
      onMethod=${(name) => (method.value = name)}
      onReset=${() => (switchedOff.value = [])}
    />
    <p class="legend">
      <span class="importance"><i style=${{ width: "70%" }} /></span>
      share of right tokens that become wrong when only this part is off
    </p>`;

const TITLES =
  STACKS.length > 1
    ? { encoder: "Encoder: reads the input", decoder: "Decoder: writes the output" }
    : {
        encoder: "Encoder: reads the input, writes all tokens of the output at once",
        decoder: "Decoder: reads the input, then writes the output",
      };
const [first, second] = STACKS.map(
  (stack) => html`<${Stack} stack=${stack} title=${TITLES[stack.side]} />`,
);

const Page = () =>
  html`<section class="card try" aria-label="Input and output"><${Input} /><${Output} /></section>
    <section class="card" aria-label="Model">
      <${Controls} />
      <div class="diagram" data-stacks=${STACKS.length}>${first}<${Links} />${second}</div>
    </section>`;

const darkMode = matchMedia("(prefers-color-scheme: dark)"),
  setTheme = () => document.documentElement.classList.toggle("dark", darkMode.matches);
darkMode.addEventListener("change", setTheme);
setTheme();
const root = /** @type {Element} */ (document.getElementById("page"));
root.replaceChildren();
render(html`<${Page} />`, root);
effect(() => {
  void [switchedOff.value, method.value];
  measureScore();
});
effect(() => {
  void method.value;
  measureImportance();
});
