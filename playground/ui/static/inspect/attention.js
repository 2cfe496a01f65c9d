// The attention weights of every head.
import { html, useMemo, useState } from "../vendor/preact.js";
import { toRows } from "../shared/attention_weights.js";
import { HeadGrid } from "../shared/diagram/diagram.js";
import { SelectedHead } from "../shared/diagram/head_map.js";
import { resolveColor } from "../shared/palette.js";
import { store } from "../shared/store.js";
import { ATTENTION_KIND, ATTENTION_KINDS, DECODER_INPUT } from "../shared/strings.js";
import { createOptions, theme } from "./section_parts.js";
import { TokenLinks } from "./token_links.js";

const DECODING_MODES = [
  {
    value: "free-running",
    label: "Greedy decoding",
    title: "The decoder continues from its own output",
  },
  {
    value: "teacher-forced",
    label: "Teacher forcing",
    title: "The decoder input is the target, shifted right, as in training",
  },
];
const DISPLAYS = [
  { value: "map", label: "Map" },
  { value: "lines", label: "Lines", title: "All heads of the layer; line width: weight" },
];

const { options, choose, set, restore } = createOptions({
  kind: "cross",
  mode: "free-running",
  layer: 1,
  head: 0,
  display: "map",
});

/** Return the selected layer and head, within what the model has. */
function selectedHead({ layers, heads }) {
  const { layer, head } = options.value,
    clamp = (index, length) => Math.max(0, Math.min(index, length - 1));
  return { layer: clamp(layer, layers), head: clamp(head, heads) };
}

/** Return the size that lets a map fit the window, with its heading and its scale. */
const cellSize = (nRows) =>
  Math.max(18, Math.min(64, Math.floor((window.innerHeight - 460) / nRows)));
const headName = (layer, head) => `Layer ${layer + 1}, head ${head + 1}`;

/** Return the response as a forward pass whose attention has one kind. */
const toPass = ({ architecture, kind, kinds, rows, columns, weights }) => ({
  architecture,
  axes: Object.fromEntries(kinds.map((each) => [each, each === kind ? [rows, columns] : []])),
  attention: { [kind]: weights },
});

function HeadMap({ data, pass, selected }) {
  return html`<h4>${headName(selected.layer, selected.head)}</h4>
    <${SelectedHead}
      pass=${pass}
      selected=${selected}
      row=${null}
      maxCellSize=${cellSize(data.rows.length)}
      title=""
      live=${store.liveness.value}
    />`;
}

/** The lines of all heads of a layer; those of a head alone while the user points at its name. */
function LayerLines({ data, selected: { layer } }) {
  const [only, setOnly] = useState(/** @type {number | null} */ (null)),
    title = `Layer ${layer + 1}, all heads`,
    heads = data.weights[layer].map((weights, color) => ({
      ...{ weights, color, name: `head ${color + 1}` },
    })),
    visible = useMemo(
      () => heads.filter(({ color }) => (only ?? color) === color),
      [data, layer, only],
    );
  void theme.value; // of the swatches
  return html`<h4>${title}</h4>
    <div class="pg-legend">
      ${heads.map(
        ({ color, name }) =>
          html`<button
            key=${name}
            type="button"
            onPointerEnter=${() => setOnly(color)}
            onPointerLeave=${() => setOnly(null)}
            onFocus=${() => setOnly(color)}
            onBlur=${() => setOnly(null)}
            onClick=${() => set({ head: color, display: "map" })}
          >
            <span class="pg-swatch" style=${{ background: resolveColor(color) }}></span>${name}
          </button>`,
      )}
    </div>
    <${TokenLinks}
      label=${title}
      kind=${data.kind}
      keys=${data.columns}
      queries=${data.rows}
      heads=${visible}
      titles=${["keys", data.kind === "cross" ? "target" : "queries"]}
    />`;
}

function Attention({ data }) {
  const { display } = options.value,
    Display = display === "lines" ? LayerLines : HeadMap,
    isSingle = data.layers * data.heads === 1,
    pass = useMemo(() => toPass(data), [data]),
    selected = { kind: data.kind, ...selectedHead(data) };
  return html`<div class="pg-row row">
      ${choose(
        "kind",
        ATTENTION_KIND,
        ATTENTION_KINDS.filter(({ value }) => data.kinds.includes(value)),
        data.kind,
      )}
      <span class="pg-quiet">decoder input</span>
      ${choose("mode", DECODER_INPUT, DECODING_MODES)}
    </div>
    <div class="pg-halves attention-two">
      ${
        !isSingle &&
        html`<div>
          <${HeadGrid}
            pass=${pass}
            selected=${selected}
            onSelect=${(_, layer, head) => set({ layer, head })}
          />
          <p class="pg-quiet">Select a head to enlarge it.</p>
        </div>`
      }
      <div class="attention-focus">
        ${choose("display", "Display", DISPLAYS, display, set)}
        <${Display} ...${{ data, pass, selected }} />
      </div>
    </div>`;
}

export const attentionSpec = {
  subView: "attention",
  title: "Weights",
  explain:
    "Attention weights of every head in every layer. Point at a cell, or tap it, to read its " +
    "weight. Each row sums to one.",
  isLocal: true,
  Component: Attention,
  options: () => ({ kind: options.value.kind, mode: options.value.mode }),
  viewOptions: () => options.value,
  restoreOptions: restore,
  exportData: (data) => ({
    ...data,
    weights: data.weights.map((heads) =>
      heads.map((weights) => toRows(weights, data.columns.length)),
    ),
  }),
};
