// The attention of one model: all heads, and the selected head or token.
import { html, signal, useEffect, useMemo, useState } from "../vendor/preact.js";
import { HeatMapView } from "../shared/components/heat_map_view.js";
import { SegmentedControl } from "../shared/components/segments.js";
import { toRows, unpackWeights } from "../shared/attention_weights.js";
import { HeadGrid } from "../shared/diagram/diagram.js";
import { ATTENTION_KIND, ATTENTION_KINDS, describeAxes, TOKEN_HINT } from "../shared/strings.js";
import { shortModelName } from "./models.js";
import { Notes } from "./pipeline.js";

export const DISPLAY_OPTIONS = [
  { value: "map", label: "one head", title: "The weights of the selected head" },
  { value: "token", label: "one token, all heads", title: TOKEN_HINT },
];
export const display = signal("map");
/** Whether the maps of pretrained models leave out the first token. */
export const isFirstHidden = signal(false);
const CAPTIONS = {
  map: "Rows: queries. Columns: keys. Each row sums to one.",
  token: "Rows: heads of the selected layer. Columns: keys of this token.",
};

/** Describe a map. Models with one stack have one sequence. */
export function describeMap(data, mode) {
  if (mode === "token" || !data.isOwn) return CAPTIONS[mode];
  const { kind, kinds, architecture } = data;
  return `${describeAxes(kind, !kinds.includes("cross"), architecture)} Each row sums to one.`;
}

const at = ({ start = 0 }, names, i) => `${names[i]} (position ${start + i + 1})`;
const cut = (list) => list.slice(1);

/** Return data and weights without the first token. The weights of a row sum to one again. */
export function withoutFirst(data, all) {
  const rescale = (row) => {
    const sum = row.reduce((total, weight) => total + weight, 0);
    return row.map((weight) => (sum ? (1000 * weight) / sum : 0));
  };
  const cutHead = (weights) =>
    cut(toRows(weights, data.columns.length)).flatMap((row) => rescale(cut(row)));
  return {
    data: {
      ...data,
      start: 1,
      rows: cut(data.rows),
      columns: cut(data.columns),
      possible: data.possible && cut(data.possible).map(cut),
    },
    all: all.map((heads) => heads.map(cutHead)),
  };
}

/** Say which heads share their keys and values with a head; empty if none do. */
export function describeSharedKeys({ heads, kv_heads: groups = heads }, head) {
  const size = heads / groups,
    first = Math.floor(head / size) * size + 1;
  return size > 1
    ? `Heads ${first} to ${first + size - 1} share their keys and values, and differ in their ` +
        "queries (grouped-query attention)."
    : "";
}

/** The weights of one head. */
function buildHeadMap(data, values) {
  const { rows, columns, possible: mask } = data;
  return {
    data: { rows, columns, values, mask },
    describe: (row, column) =>
      `${at(data, rows, row)} attends to ${at(data, columns, column)} with weight ` +
      `${values[row][column].toFixed(3)}.`,
  };
}

/** The weights of one token in all heads of a layer. */
function buildTokenMap(data, layer, heads, token) {
  const names = heads.map((_, head) => `${layer + 1}.${head + 1}`),
    { columns, possible } = data,
    values = heads.map((weights) => toRows(weights, columns.length)[token]);
  return {
    data: {
      rows: names,
      columns,
      values,
      mask: possible && heads.map(() => possible[token]),
      maxCellSize: 34,
    },
    describe: (row, column) =>
      `Head ${names[row]}: ${at(data, data.rows, token)} attends to ${at(data, columns, column)} ` +
      `with weight ${values[row][column].toFixed(3)}.`,
  };
}

/** Return the weights as a forward pass with one kind of attention, and that kind. */
function toPass({ isOwn, kind, kinds, possible, rows, columns }, weights) {
  const name = isOwn ? kind : possible ? "decoder" : "encoder",
    axes = Object.fromEntries((isOwn ? kinds : [name]).map((each) => [each, [rows, columns]]));
  return { kind: name, pass: { axes, attention: { [name]: weights } } };
}

function KindControl({ kinds, kind }) {
  const options = ATTENTION_KINDS.filter(({ value }) => kinds.includes(value)).map(
    ({ value, title }) => ({ value, label: value, title }),
  );
  return html`<${SegmentedControl} label=${ATTENTION_KIND} options=${options} of=${kind} />`;
}

function LargeMap({ data, all, selection, mode, select }) {
  const { layer, head, token } = selection,
    isToken = mode === "token",
    title = isToken
      ? `${at(data, data.rows, token)} in every head of layer ${layer + 1}`
      : `Layer ${layer + 1}, head ${head + 1}`;
  const map = useMemo(
    () =>
      isToken
        ? buildTokenMap(data, layer, all[layer], token)
        : buildHeadMap(data, toRows(all[layer][head], data.columns.length)),
    [data, layer, head, token, mode],
  );
  return html`<div>
    <h4>${title} of ${shortModelName(data.model)}</h4>
    <${HeatMapView}
      label=${title}
      data=${map.data}
      describe=${map.describe}
      caption=${`${describeMap(data, mode)} ${describeSharedKeys(data, head)}`}
      onSelect=${(row) => {
        select(isToken ? { head: row } : { token: row });
        display.value = isToken ? "map" : "token";
      }}
    />
  </div>`;
}

/** The selected layer, head and token of a panel, within the sizes of its model. */
function useSelection(data, initial) {
  const [requested, setRequested] = useState({ layer: 0, head: 0, token: 0 });
  useEffect(
    () => setRequested((before) => ({ ...before, token: 0 })),
    [data?.text, data?.model, data?.start],
  );
  useEffect(() => {
    if (initial) setRequested((before) => ({ ...before, ...initial }));
  }, [initial]);
  const limit = (value, size) => Math.max(0, Math.min(value, size - 1));
  return {
    selection: data && {
      layer: limit(requested.layer, data.layers),
      head: limit(requested.head, data.heads),
      token: limit(requested.token, data.rows.length),
    },
    select: (changes) => setRequested({ ...requested, ...changes }),
  };
}

/**
 * @param {{ index: number, data: any, kind?: any,
 *   initial?: { layer: number, head: number } | null }} props `kind` is the signal of the kind of
 *   attention; `initial` selects a head
 */
export function AttentionPanel({ index, data: whole, kind = null, initial = null }) {
  const isOwn = Boolean(whole?.isOwn),
    isCut = isFirstHidden.value && !isOwn && whole?.rows.length > 1,
    { data, all } = useMemo(() => {
      const weights = whole && unpackWeights(whole);
      return isCut ? withoutFirst(whole, weights) : { data: whole, all: weights };
    }, [whole, isCut]),
    { selection, select } = useSelection(data, initial),
    { layer = 0, head = 0, token = 0 } = selection ?? {},
    mode = display.value,
    picture = useMemo(() => data && toPass(data, all), [data]);
  if (!data)
    return html`<section class=${"panel-" + index} aria-label=${`Model ${index + 1}`}>
      <p class="pg-hint pg-empty">Press Show attention to see the attention of each head.</p>
    </section>`;
  return html`<section
    class=${"panel-" + index}
    aria-label=${shortModelName(data.model)}
    data-drawn=${`${mode} ${data.model} ${layer + 1}.${head + 1}`}
  >
    ${kind && html`<${KindControl} kinds=${data.kinds} kind=${kind} />`}
    <${HeadGrid}
      pass=${picture.pass}
      selected=${{ kind: picture.kind, layer, head }}
      row=${mode === "token" ? token : null}
      onSelect=${(_, l, h) => select({ layer: l, head: h })}
    />
    <${LargeMap} data=${data} all=${all} selection=${selection} mode=${mode} select=${select} />
    <${Notes} notes=${data.notes ?? []} />
  </section>`;
}
