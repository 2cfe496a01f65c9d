"""The figures of cards, reports and `python -m playground inspect`.

Each takes plain data: training curves, exact match by length, attention of heads, and ablation.

Shapes of arrays: L layers, H heads, Q queries (rows), M keys (columns).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from playground.common.format import format_csv, format_percent
from playground.common.stats import exact_match_interval, floor_to

from .style import (
    ACCENT,
    FOREGROUND,
    FORMATS,
    GRID,
    MUTED,
    SECONDARY,
    add_colorbar,
    add_legend,
    annotate_cell,
    draw_heatmap,
    label_axis,
    new_figure,
    render,
    set_caption,
    set_percent_axis,
    set_step_axis,
    size_panels,
    style_chart,
)

Row = Mapping[str, Any]
MAX_MARKERS = 60  # points of a curve that are drawn with markers
DASHES = (0, (4, 2))
CURVES: dict[str, dict[str, Any]] = {
    "exact match": {"color": ACCENT, "linewidth": 1.6, "zorder": 3},
    "token accuracy": {"color": SECONDARY, "linewidth": 1.2, "linestyle": DASHES},
}
CAPTIONS = {
    "encoder": "rows: source tokens (queries)    columns: source tokens (keys)",
    "decoder": "rows: decoder input (queries)    columns: decoder input (keys); "
    "masked positions are hatched",
    "cross": "rows: the target token that each query predicts    columns: source tokens (keys)",
}
COLORBAR_NOTE = "darker: more attention, from 0 to 1; every row sums to 1"
MAX_PANEL_IN, MIN_PANEL_IN, MAX_CELL_IN = 4.0, 1.25, 0.36
MAX_HEAD_IN = 6.0  # of a single head
MAX_LAYERS, MAX_HEADS = 8, 16  # the most that one figure draws
MAX_BARS = 24
LINE_IN = 0.23  # per component
MARKERS: dict[str, dict[str, Any]] = {
    "mean": {"marker": "o", "color": ACCENT},
    "zero": {"marker": "D", "color": SECONDARY, "markerfacecolor": "white"},
    "resample": {"marker": "x", "color": MUTED},
}


# Training and lengths


def training_curve(
    lines: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]] | None = None
) -> Figure:
    """Draw the loss over the steps, and exact match and token accuracy at the evaluated steps.

    `lines` are those of metrics.jsonl, at least one. `evaluated` are the lines with accuracies, if
    they are not among `lines`; not every run has a held-out loss.
    """
    if evaluated is None:
        evaluated = [line for line in lines if line.get("exact_match") is not None]
    n_panels = 2 if evaluated else 1
    figure = new_figure(4.4 if evaluated else 2.65)
    panels = figure.subplots(
        n_panels, 1, sharex=True, squeeze=False, height_ratios=(1.75, 1.3)[:n_panels]
    ).flat
    _draw_loss(panels[0], lines, evaluated)
    if evaluated:
        _draw_accuracy(panels[1], evaluated)
    bottom = panels[n_panels - 1]
    bottom.set_xlim(0, 1.01 * max(1, *(line["step"] for line in lines)))
    set_step_axis(bottom.xaxis)
    label_axis(bottom.xaxis, "step")
    return figure


def _draw_loss(
    axes: Axes, lines: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]]
) -> None:
    training, held_out = _points(lines, "loss"), _points(evaluated, "held_out_loss")
    style_chart(axes, f"{'Loss' if held_out else 'Training loss'}, on a log scale")
    style: dict[str, Any] = {"linewidth": 1.3, "markersize": 4, "label": "training"}
    _draw_curve(axes, training, 1, color=ACCENT, **style)
    if held_out:
        style = {"linewidth": 1.2, "linestyle": DASHES, "label": "held-out"}
        _draw_curve(axes, held_out, 1, color=ACCENT, **style)
        _add_legend_above(axes)
    positive = [loss for _, loss in (*training, *held_out) if loss > 0]
    if not positive:
        return
    axes.set_yscale("log")
    ratio = max(positive) / min(positive)
    axes.yaxis.set_major_locator(
        MaxNLocator(4, prune="both")
        if ratio < 4
        else LogLocator(subs=(1, 2, 5) if ratio < 100 else (1,))
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_accuracy(axes: Axes, evaluated: Sequence[Mapping[str, Any]]) -> None:
    sizes = {line.get("eval_size") for line in evaluated} - {None}
    size = f"{sizes.pop():,} " if len(sizes) == 1 else ""
    style_chart(axes, f"Accuracy on {size}held-out sequences")
    for label, style in CURVES.items():
        points = _points(evaluated, label.replace(" ", "_"))
        _draw_curve(axes, points, MAX_MARKERS, label=label, **style)
    set_percent_axis(axes.yaxis)
    _add_legend_above(axes)


def _points(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(line["step"], line[name]) for line in lines if line.get(name) is not None]


def _draw_curve(
    axes: Axes, points: Sequence[tuple[int, float]], max_markers: int, **style: Any
) -> None:
    marker = "o" if len(points) <= max_markers else ""
    axes.plot(*zip(*points, strict=True), marker=marker, **{"markersize": 3} | style)


def _add_legend_above(axes: Axes) -> None:
    add_legend(axes, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=2, borderaxespad=0.1)


def exact_match_by_length(scores: Mapping[str, Any]) -> Figure:
    """Draw exact match by length with 95 % intervals, from scores with at least one length."""
    lines = scores["by_length"]
    width = max(5.2, min(10.0, 1.0 + 0.52 * len(lines)))
    figure = new_figure(2.95, width)
    axes = style_chart(figure.subplots(), "Exact match by length, with 95 % intervals")
    for line in lines:
        interval = exact_match_interval(line)
        if interval is None:
            continue
        length = line["length"]
        axes.plot(
            [length] * 2, interval, color=ACCENT, linewidth=4, alpha=0.35, solid_capstyle="butt"
        )
        axes.plot([length], [line["exact_match"]], color=ACCENT, marker="o", markersize=4.5)
    set_percent_axis(axes.yaxis, (0, 0.25, 0.5, 0.75, 1))
    labeled = lines[:: math.ceil(0.42 * len(lines) / (width - 0.9))]
    axes.set_xticks(
        [line["length"] for line in labeled],
        [f"{line['length']}\n{line['n']:,}" for line in labeled],
    )
    axes.set_xlim(lines[0]["length"] - 0.6, lines[-1]["length"] + 0.6)
    label_axis(axes.xaxis, "length, and the number of held-out sequences")
    return figure


# Attention


def attention_grid(data: Row) -> Figure:
    """Draw a heat map for each head of one type of attention, with one row of them per layer.

    Masked cells are hatched. `data`: kind, title, rows, columns, weights LHQM, possible QM.
    """
    every = np.asarray(data["weights"], dtype=float)
    weights = every[:MAX_LAYERS, :MAX_HEADS]
    layers, heads = weights.shape[:2]
    visible_LHQM = np.where(np.asarray(data["possible"], dtype=bool), weights, np.nan)
    is_cut = weights.size < every.size
    cut = f"; the first {heads} heads of the first {layers} layers" if is_cut else ""
    caption = CAPTIONS[data["kind"]], COLORBAR_NOTE + cut
    title = data["title"].capitalize()
    return draw_heads(visible_LHQM, data["rows"], data["columns"], title, caption)


def cross_attention(weights_LHQM: Any, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Draw the cross-attention weights of every head, without a title.

    `rows` are the tokens that the queries predict, `columns` the source tokens.
    """
    caption = CAPTIONS["cross"], COLORBAR_NOTE
    return draw_heads(np.asarray(weights_LHQM, dtype=float), rows, columns, "", caption)


def draw_heads(
    weights_LHQM: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    caption: Sequence[str] = (),
) -> Figure:
    """Draw a heat map for each head, with one row of them per layer; NaN is hatched."""
    layers, heads = weights_LHQM.shape[:2]
    panel = max(MIN_PANEL_IN, min(MAX_PANEL_IN, 2 * MAX_PANEL_IN / heads))
    cell = min(MAX_CELL_IN, panel / max(len(rows), len(columns)))
    width, height = cell * len(columns), cell * len(rows)
    figure = new_figure(title=title)
    panels: Any = figure.subplots(layers, heads, squeeze=False)
    for layer, head in np.ndindex(layers, heads):
        axes = panels[layer, head]
        draw_heatmap(
            axes,
            weights_LHQM[layer, head],
            rows if head == 0 else None,
            columns if layer == layers - 1 else None,
            (cell, cell),
        )
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize=9, color=FOREGROUND, pad=5)
        if head == 0:
            label_axis(axes.yaxis, f"layer {layer + 1}")
    add_colorbar(panels[0, -1], height)
    set_caption(figure, *caption)
    size_panels(figure, panels, width, height)
    return figure


def single_head(data: Row) -> Figure:
    """Draw one head as a large heat map with its numbers.

    `data`: kind, title, rows, columns, weights QM, possible QM.
    """
    rows, columns = data["rows"], data["columns"]
    visible_QM = np.where(np.asarray(data["possible"], dtype=bool), data["weights"], np.nan)
    caption = CAPTIONS[data["kind"]], COLORBAR_NOTE
    panel = max(MAX_HEAD_IN, 0.2 * max(len(rows), len(columns)))
    return draw_head(visible_QM, rows, columns, data["title"].capitalize(), caption, panel)


def draw_head(
    weights_QM: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    caption: Sequence[str] = (),
    panel: float = MAX_HEAD_IN,
) -> Figure:
    """Draw one heat map of at most `panel` inches, with numbers if they fit; NaN is hatched."""
    cell = min(0.52, panel / max(len(rows), len(columns)))
    figure = new_figure(title=title)
    panels: Any = figure.subplots(1, 1, squeeze=False)
    axes = panels[0, 0]
    draw_heatmap(axes, weights_QM, rows, columns, (cell, cell))
    axes.tick_params(labelsize=10)
    if cell > MAX_CELL_IN:
        for q, m in np.argwhere(weights_QM >= 0.01):
            number = f"{floor_to(weights_QM[q, m], 2):.2f}".removeprefix("0")
            annotate_cell(axes, m, q, number, weights_QM[q, m])
    add_colorbar(axes, cell * len(rows))
    set_caption(figure, *caption)
    size_panels(figure, panels, cell * len(columns), cell * len(rows))
    return figure


# Ablation


def ablation_ranking(rows: Sequence[Row], title: str = "") -> Figure:
    """Draw the effects of ablations: the drop in log-probability, and the exact match.

    The methods have different markers. At most 24 components are drawn, in the order of `rows`:
    name, method, keep_only, n, exact_match, exact_match_before, log_probability_drop.
    """
    every = list(dict.fromkeys(row["name"] for row in rows))
    names = every[:MAX_BARS]
    drawn = [row for row in rows if row["name"] in names]
    keep_only = rows[0]["keep_only"]
    default_title = "Keep-only ablation of heads" if keep_only else "Ablation of each component"
    figure = new_figure(LINE_IN * len(names) + 1.6, title=title or default_title)
    drop, exact = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    _draw_effects(drop, drawn, names, "log_probability_drop")
    _draw_effects(exact, drawn, names, "exact_match")
    drop.set_yticks(range(len(names)), names)
    _set_log_axis(drop, [row["log_probability_drop"] for row in drawn])
    label_axis(drop.xaxis, "drop in log-probability, in nats")
    add_legend(drop, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, borderaxespad=0.2)
    set_percent_axis(exact.xaxis)
    label_axis(exact.xaxis, "exact match")
    before = rows[0]["exact_match_before"]
    exact.axvline(before, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
    intact: dict[str, Any] = {"fontsize": 8, "color": MUTED, "ha": "right", "va": "bottom"}
    exact.text(before, -0.75, f"intact: {format_percent(before)}", **intact)
    rest = f"; the first {len(names)} of {len(every)}" if len(every) > len(names) else ""
    replaced = "outputs of all other heads" if keep_only else "output"
    set_caption(
        figure,
        f"{replaced} replaced by the mean at each position, by zero, or by another sequence's; "
        f"{rows[0]['n']:,} held-out sequences{rest}",
    )
    return figure


def _draw_effects(axes: Axes, rows: Sequence[Row], names: Sequence[str], key: str) -> None:
    """Draw one marker for each component and method."""
    style_chart(axes, grid="x")
    for y in range(len(names)):
        axes.axhline(y, color=GRID, linewidth=0.5, zorder=0)
    labeled = set()
    for row in rows:
        label = None if row["method"] in labeled else row["method"]
        labeled.add(row["method"])
        axes.plot(
            row[key],
            names.index(row["name"]),
            linestyle="",
            markersize=5,
            label=label,
            **MARKERS[row["method"]],
        )
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _set_log_axis(axes: Axes, drops: Sequence[float]) -> None:
    """Give a panel a logarithmic axis on both sides of zero, with powers of ten as ticks."""
    low, high = min(-0.02, 1.3 * min(drops)), 1.5 * max(0.1, *drops)
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.6)
    axes.set_xlim(low, high)
    powers = [10.0**n for n in range(-1, math.ceil(math.log10(max(high, -low))) + 1)]
    ticks = [-power for power in reversed(powers) if power < -low]
    ticks += [0, *(power for power in powers if power < high)]
    axes.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


# Files

FIGURES: dict[str, Callable[[Any], Figure]] = {
    "encoder-attention": attention_grid,
    "decoder-attention": attention_grid,
    "cross-attention": attention_grid,
    "head": single_head,
    "ablation": ablation_ranking,
    "ablation-groups": lambda rows: ablation_ranking(rows, "Ablation of each group"),
    "keep-only": ablation_ranking,
    "loss": lambda rows: training_curve(
        [{name: value for name, value in row.items() if value is not None} for row in rows]
    ),
    "exact-match-by-length": exact_match_by_length,
}


def write(folder: Path, name: str, data: Any) -> list[Path]:
    """Write a figure as .png, .svg and .pdf, and its data: a table as .csv, others as .json."""
    figure = FIGURES[name](data)
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for path, kind in zip(paths, FORMATS, strict=True):
        path.write_bytes(render(figure, kind))
    if isinstance(data, list):
        paths.append(folder / f"{name}.csv")
        rows = [[row.get(name) for name in data[0]] for row in data]
        text = format_csv([data[0].keys(), *rows])
        paths[-1].write_text(text, encoding="utf-8", newline="")
    else:
        paths.append(folder / f"{name}.json")
        paths[-1].write_bytes(json.dumps(data, ensure_ascii=False).encode() + b"\n")
    return paths
