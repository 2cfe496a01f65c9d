// The attention weights of every head.
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { HeadGrid } from "../shared/components/head_grid.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { currentTheme, onThemeChange, resolveColor } from "../shared/palette.js";
import {
  ATTENTION_KIND,
  ATTENTION_KINDS,
  CROSS_CAPTION,
  DECODER_INPUT,
  ENCODER_CAPTION,
  SINGLE_STACK_CAPTIONS,
} from "../shared/strings.js";
import { createOptions } from "./options.js";
import { pageWidth } from "./state.js";
import { TokenLinks } from "./token_links.js";

const CAPTIONS = {
  cross: CROSS_CAPTION,
  encoder: ENCODER_CAPTION,
  decoder:
    "Rows: decoder input (queries). Columns: decoder input (keys). Masked positions are hatched.",
};
export const DECODING_MODES = [
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
  {
    value: "sampled",
    label: "Sampling",
    title: "Each token is sampled from the predicted probabilities",
  },
];
const DISPLAYS = [
  { value: "map", label: "Map" },
  { value: "lines", label: "Lines", title: "Line width: attention weight" },
  { value: "layer", label: "Lines, all heads", title: "The lines of every head of the layer" },
];

const { options, set, update, restore } = createOptions({
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

/** The labels of cross-attention are the tokens that its queries predict. */
const nameQuery = (kind, rows, row) =>
  `${kind === "cross" ? "The query that predicts " : ""}${rows[row]} (position ${row + 1})`;
/** Return the size that lets a map fit the window, with its heading and its scale. */
const cellSize = (nRows) =>
  pageWidth.value && Math.max(18, Math.min(64, Math.floor((innerHeight - 460) / nRows)));
const headName = (layer, head) => `Layer ${layer + 1}, head ${head + 1}`;
const maskOf = ({ kind, possible }) => (kind === "decoder" ? possible : null);

/**
 * Describe a weight.
 * @param {{ kind?: string, rows: any, columns: any }} labels
 */
export function describeCell({ kind, rows, columns }, weights, row, column) {
  return (
    `${nameQuery(kind, rows, row)} attends to ${columns[column]} (position ${column + 1}) ` +
    `with weight ${weights[row][column].toFixed(3)}.`
  );
}

/** The heads of all layers as small maps. */
function Heads({ data, weights }) {
  const { layer, head } = selectedHead(data),
    heads = useMemo(
      () =>
        weights.map((layer) => layer.map((values) => ({ ...data, values, mask: maskOf(data) }))),
      [data, weights],
    );
  return html`<div>
    <${HeadGrid}
      label="Heads"
      heads=${heads}
      selected=${[layer, head]}
      onSelect=${(layer, head) => set({ layer, head })}
    />
    <p class="pg-quiet">Select a head to enlarge it.</p>
  </div>`;
}

/** The map of one head. */
function HeadMap({ data, weights }) {
  const { layer, head } = selectedHead(data),
    values = weights[layer][head],
    maxCellSize = cellSize(data.rows.length);
  const caption = data.kinds.includes("cross")
    ? CAPTIONS[data.kind]
    : (SINGLE_STACK_CAPTIONS[data.architecture] ?? SINGLE_STACK_CAPTIONS[data.kind]);
  return html`<h4>${headName(layer, head)}</h4>
    <${HeatMapView}
      label=${headName(layer, head)}
      data=${{ rows: data.rows, columns: data.columns, values, mask: maskOf(data), maxCellSize }}
      caption=${caption}
      describe=${(row, column) => describeCell(data, values, row, column)}
    />`;
}

const linesHint = ({ kind }) =>
  kind === "cross" ? "Left: the target token that each query predicts. Right: keys." : undefined;

function HeadLines({ data, weights }) {
  const { layer, head } = selectedHead(data);
  return html`<h4>${headName(layer, head)}</h4>
    <${TokenLinks}
      label=${headName(layer, head)}
      queries=${data.rows}
      keys=${data.columns}
      hint=${linesHint(data)}
      heads=${[{ name: "", weights: weights[layer][head], color: `var(--pg-${data.kind})` }]}
    />`;
}

/** The lines of all heads of a layer. A click on a head of the legend shows that head. */
function LayerLines({ data, weights }) {
  const { layer } = selectedHead(data),
    [, setTheme] = useState(currentTheme());
  useEffect(() => onThemeChange(() => setTheme(currentTheme())), []);
  const heads = weights[layer].map((values, head) => ({
    name: "head " + (head + 1),
    weights: values,
    color: resolveColor(head),
  }));
  return html`<h4>Layer ${layer + 1}, all heads</h4>
    <div class="pg-legend">
      ${heads.map(
        ({ color, name }, head) =>
          html`<button key=${name} type="button" onClick=${() => set({ head, display: "lines" })}>
            <span class="pg-swatch" style=${{ background: color }}></span>${name}
          </button>`,
      )}
    </div>
    <${TokenLinks}
      label=${`Layer ${layer + 1}, all heads`}
      queries=${data.rows}
      keys=${data.columns}
      hint=${linesHint(data)}
      heads=${heads}
    />`;
}

function Attention({ data }) {
  const { mode, display } = options.value,
    { weights } = data,
    views = { map: HeadMap, lines: HeadLines, layer: LayerLines },
    isSingle = data.layers * data.heads === 1,
    displays = isSingle ? DISPLAYS.slice(0, 2) : DISPLAYS,
    displayed = displays.some(({ value }) => value === display) ? display : "map",
    Display = views[displayed];
  return html`<div class="pg-row row">
      <${SegmentedControl}
        label=${ATTENTION_KIND}
        options=${ATTENTION_KINDS.filter(({ value }) => data.kinds.includes(value))}
        value=${data.kind}
        onChange=${(kind) => update({ kind })}
      />
      <span class="pg-quiet">decoder input</span>
      <${SegmentedControl}
        label=${DECODER_INPUT}
        options=${DECODING_MODES.slice(0, 2)}
        value=${mode}
        onChange=${(value) => update({ mode: value })}
      />
    </div>
    <div class="pg-halves attention-two">
      ${!isSingle && html`<${Heads} data=${data} weights=${weights} />`}
      <div class="attention-focus">
        <${SegmentedControl}
          label="Display"
          options=${displays}
          value=${displayed}
          onChange=${(value) => set({ display: value })}
        />
        <${Display} key=${displayed} data=${data} weights=${weights} />
      </div>
    </div>`;
}

export const attentionSpec = {
  subView: "attention",
  title: "Attention",
  explain:
    "Attention weights of every head in every layer. Point at a cell to read its weight. Each " +
    "row sums to one.",
  isLocal: true,
  Component: Attention,
  options: () => ({ kind: options.value.kind, mode: options.value.mode }),
  viewOptions: () => options.value,
  restoreOptions: restore,
  exportData: (data) => ({
    ...data,
    weights: data.weights.map((heads) =>
      heads.map((rows) => rows.map((row) => [...row].map((weight) => +weight.toFixed(3)))),
    ),
  }),
  rows: (data) =>
    data.weights.flatMap((heads, layer) =>
      heads.flatMap((weights, head) =>
        weights.flatMap((row, r) =>
          [...row].map((weight, k) => ({
            kind: data.kind,
            layer: layer + 1,
            head: head + 1,
            row: r + 1,
            from: data.rows[r],
            column: k + 1,
            to: data.columns[k],
            weight: +weight.toFixed(3),
            possible: data.possible[r][k],
          })),
        ),
      ),
    ),
};
