// Generation, step by step: the tokens so far, the probabilities of the next one, and the source
// tokens that it attends to.
import { Button } from "../shared/components/buttons.js";
import { html, signal, useEffect, useMemo } from "../vendor/preact.js";
import { BarList } from "../shared/components/bar_list.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { Select } from "../shared/components/select.js";
import { DECODING_MODES } from "./attention.js";
import { store } from "../shared/store.js";
import { createOptions } from "./section_parts.js";
import { TokenLinks } from "./token_links.js";

const PLAYBACK_MS = 900;
const LINK_LABELS = {
  cross: "Cross-attention at each output position",
  decoder: "Decoder self-attention at each output position",
};
const TYPING_DELAY_MS = 200;
const { options, choose, set, update, restore } = createOptions({
  mode: "free-running",
  temperature: 1,
  seed: 0,
  step: 0,
  head: "", // as layer.head; empty for the mean of all heads
});
const isPlaying = signal(false);

/** Return the position on display; a shorter output has fewer. */
const currentStep = (data) => Math.min(options.value.step, data.steps.length - 1);

/**
 * Return the weights of one head, or their mean over the heads.
 * @param {number[][]} thousandths by head
 * @param {number} head the index of the head; -1 for the mean
 */
export function weightsOf(thousandths, head) {
  if (thousandths[head]) return thousandths[head];
  const sums = thousandths[0].map((_, i) => thousandths.reduce((sum, row) => sum + row[i], 0));
  return sums.map((sum) => sum / thousandths.length);
}

/** Return the links of all steps: to the source, and to the tokens before each. */
function buildLinks({ source, steps }, head) {
  const inputs = steps.at(-1).prefix,
    written = steps.map(({ token }) => token),
    hasTarget = steps.every(({ target }) => target !== null),
    queries = hasTarget ? steps.map(({ target }) => target) : written,
    later = (n) => Array(inputs.length - n).fill(0),
    cross = steps.flatMap((step) => weightsOf(step.cross, head)),
    decoder = steps.flatMap(({ decoder, prefix }) => [
      ...weightsOf(decoder, head),
      ...later(prefix.length),
    ]);
  return [
    {
      kind: "cross",
      queries,
      keys: source,
      heads: [{ weights: cross, color: "--pg-cross" }],
      titles: ["source", hasTarget ? "target" : "", "output"],
      output: {
        target: queries,
        predicted: written,
        probability: steps.map(({ probability }) => 1000 * probability),
      },
    },
    {
      kind: "decoder",
      queries: inputs,
      keys: inputs,
      heads: [{ weights: decoder, color: "--pg-decoder" }],
      titles: ["so far", "latest"],
    },
  ];
}

function SamplingFields() {
  const { temperature, seed } = options.value,
    onInput = (name) => (event) =>
      update({ [name]: Number(event.currentTarget.value) }, TYPING_DELAY_MS);
  const field = (name, value, limits) =>
    html`<label>
      ${name}
      <input
        type="number"
        class=${"steps-" + name}
        value=${value}
        ...${limits}
        onInput=${onInput(name)}
      />
    </label>`;
  return [
    field("temperature", temperature, { min: 0.1, max: 5, step: 0.1 }),
    field("seed", seed, { min: 0, step: 1 }),
  ];
}

function Player({ data }) {
  const step = currentStep(data),
    last = data.steps.length - 1;
  useEffect(() => {
    if (!isPlaying.value) return;
    const timer = setTimeout(() => {
      if (step < last) set({ step: step + 1 });
      else isPlaying.value = false;
    }, PLAYBACK_MS);
    return () => clearTimeout(timer);
  }, [isPlaying.value, step, last]);
  const toggle = () => {
    if (!isPlaying.value) set({ step: step === last ? 0 : step + 1 });
    isPlaying.value = !isPlaying.value;
  };
  return html`<div class="pg-row steps-bar">
    <${Button} class="steps-play" onClick=${toggle}>${isPlaying.value ? "Pause" : "Play"}<//>
    <input
      type="range"
      class="steps-slider"
      min="0"
      max=${last}
      value=${step}
      aria-label="Output position"
      onInput=${(event) => {
        isPlaying.value = false;
        set({ step: Number(event.currentTarget.value) });
      }}
    />
    <output class="pg-quiet steps-words">position ${step + 1} of ${last + 1}</output>
  </div>`;
}

/** The attention of every head at one position. A click on a row selects the head. */
function HeadsMap({ data, title, thousandths, columns }) {
  const values = thousandths.map((row) => row.map((value) => value / 1000));
  const describe = (row, column) =>
    `Head ${data.heads[row]} attends to ${columns[column]} (position ${column + 1}) with weight ` +
    `${values[row][column].toFixed(3)}.`;
  return html`<div>
    <h4>${title}</h4>
    <${HeatMapView}
      label=${title}
      data=${{ rows: data.heads, columns, values, maxCellSize: 34 }}
      caption="Rows: heads as layer.head. Select a row to draw that head above."
      describe=${describe}
      onSelect=${(row) => set({ head: data.heads[row] })}
    />
  </div>`;
}

function Candidates({ step }) {
  const items = step.candidates.map(([label, value]) => ({
    label,
    value,
    isTarget: label === step.token,
    title: String(value),
  }));
  return html`<div class="steps-bars">
    <h4>Next-token probabilities</h4>
    <${BarList} label="Next-token probabilities" items=${items} />
    ${
      step.target !== null &&
      step.target !== step.token &&
      html`<p class="pg-error">✗ The target is ${step.target}.</p>`
    }
  </div>`;
}

const HeadSelect = ({ heads, head }) =>
  html`<${Select}
    label="Links:"
    class="steps-head"
    options=${[
      { value: "", label: "mean of all heads" },
      ...heads.map((name) => ({ value: name, label: "head " + name })),
    ]}
    value=${head}
    onChange=${(value) => set({ head: value })}
  />`;

function Generation({ data }) {
  const { mode, head } = options.value,
    at = currentStep(data),
    step = data.steps[at],
    index = data.heads.indexOf(head),
    links = useMemo(() => buildLinks(data, index), [data, index]);
  return html`<div class="pg-row row">
      ${choose("mode", "Decoding mode", DECODING_MODES)}
      ${mode === "sampled" && html`<${SamplingFields} />`}
      <${Player} data=${data} />
      <${HeadSelect} heads=${data.heads} head=${index < 0 ? "" : head} />
    </div>
    <div class="pg-halves">
      ${links.map(
        (each) =>
          html`<${TokenLinks}
            key=${each.kind}
            ...${each}
            label=${LINK_LABELS[each.kind]}
            row=${at}
            onSelect=${(row) => row !== null && set({ step: row })}
          />`,
      )}
    </div>
    <output class="steps-written pg-visually-hidden" aria-live=${store.liveness.value}>
      ${[...step.prefix.slice(1), step.token].join(" ")}
    </output>
    <div class="steps-two">
      <${Candidates} step=${step} />
      <${HeadsMap}
        data=${data}
        title="Cross-attention of each head"
        thousandths=${step.cross}
        columns=${data.source}
      />
      <${HeadsMap}
        data=${data}
        title="Decoder self-attention of each head"
        thousandths=${step.decoder}
        columns=${step.prefix}
      />
    </div>`;
}

export const generationSpec = {
  subView: "attention",
  title: "Generation",
  explain:
    "The model generates one token at a time. Left: the source positions that each query attends " +
    "to, beside the token that it predicts. Right: the positions of the decoder input that the " +
    "latest query attends to. Thicker lines: larger weights.",
  Component: Generation,
  options: () => {
    const { mode, temperature, seed } = options.value;
    return mode === "sampled" ? { mode, temperature, seed } : { mode };
  },
  viewOptions: () => options.value,
  restoreOptions: restore,
  rows: (data) =>
    data.steps.flatMap((step, i) =>
      step.candidates.map(([token, probability], rank) => ({
        position: i + 1,
        prefix: step.prefix.join(" "),
        rank: rank + 1,
        token,
        probability,
        is_chosen: token === step.token,
        target: step.target,
      })),
    ),
};
