"""The figures of inspection: attention, ablation, head patterns, logit lens, position vectors.

Each takes the plain data that `python -m playground inspect` writes next to it.

Shapes of arrays: L layers, H heads, Q queries (rows), M keys (columns), P positions, D dimensions.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from playground.common.format import format_percent
from playground.common.stats import floor_to

from .training import (
    ACCENT,
    ATTENTION_CMAP,
    FOREGROUND,
    GRID,
    MONO,
    MUTED,
    SECONDARY,
    UNIT_NORM,
    add_axes_inches,
    colorbar,
    exact_match_by_length,
    heatmap,
    new_figure,
    save,
    style_axes,
    training_curve,
)

Row = Mapping[str, Any]

# Eight colors that are distinguishable without full color vision (Okabe and Ito 2008, without
# yellow, which is hard to see on white).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c2530", "#8a919c")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))

# A diverging colormap with white at zero, equally dark at equal distance from it.
DIVERGING_CMAP = LinearSegmentedColormap.from_list(
    "signed", ["#5e3000", "#b35c00", "#e6b680", "#ffffff", "#8fbfdf", "#1f6fb2", "#0b3a66"]
)

ATTENTION_CAPTIONS = {
    "encoder": "rows: source tokens (queries)    columns: source tokens (keys)",
    "decoder": "rows: generated tokens (queries)    columns: decoder input (keys); "
    "masked positions are hatched",
    "cross": "rows: generated tokens (queries)    columns: source tokens (keys)",
}
COLORBAR_NOTE = "darker: more attention, from 0 to 1; every row sums to 1"
# The most that one figure draws.
MAX_BARS = 24
MAX_LAYERS = 8
MAX_HEADS = 16
MAX_STEPS = 24
MAX_ROWS = 96
MAX_POSITIONS = 40
MAX_COMPONENTS = 60
CAPTION_WIDTH_IN = 5.6  # inches that the longest line of a caption needs


# Attention


def attention_grid(data: Row) -> Figure:
    """Draw a heatmap for each head of one type of attention, with one row of heatmaps per layer.

    Masked cells are hatched. `data`: kind, title, rows, columns, weights LHQM, possible QM.

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    every, rows, columns = _crop_to_labels(data, 4)
    weights = every[:MAX_LAYERS, :MAX_HEADS]
    layers, heads = weights.shape[:2]
    widest = max(1.25, min(4.0, 8.0 / heads))
    cell = min(0.36, widest / max(len(rows), len(columns)))
    across, down, gap = cell * len(columns), cell * len(rows), 0.2
    left, below, above = 0.6 + _label_width(rows), 0.55 + _tick_label_width(columns), 0.62
    width = max(left + CAPTION_WIDTH_IN, left + heads * across + (heads - 1) * gap + 0.6)
    height = below + layers * down + (layers - 1) * gap + above
    figure = new_figure(width, height)
    _title(figure, left, data["title"].capitalize())
    for layer in range(layers):
        bottom = below + (layers - 1 - layer) * (down + gap)
        for head in range(heads):
            axes = add_axes_inches(figure, left + head * (across + gap), bottom, across, down)
            _hatch_missing(axes)
            visible = np.where(data["possible"], weights[layer, head], np.nan)
            heatmap(
                axes,
                visible,
                rows,
                columns,
                label_rows=head == 0,
                label_columns=layer == layers - 1,
            )
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=9, color=FOREGROUND, pad=5)
        middle = (bottom + down / 2) / height
        figure.text(
            0.22 / width,
            middle,
            f"layer {layer + 1}",
            rotation=90,
            fontsize=9,
            color=FOREGROUND,
            ha="center",
            va="center",
        )
    tall = min(layers * down + (layers - 1) * gap, 2.4)
    colorbar(figure, left + heads * across + (heads - 1) * gap + 0.15, height - above - tall, tall)
    cut = (
        f"; the first {heads} heads of the first {layers} layers"
        if weights.size < every.size
        else ""
    )
    _caption(figure, left, ATTENTION_CAPTIONS[data["kind"]], COLORBAR_NOTE + cut)
    return figure


def single_head(data: Row) -> Figure:
    """Draw one head as a large heatmap with its numbers.

    `data`: kind, title, rows, columns, weights QM, possible QM.

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    weights, rows, columns = _crop_to_labels(data, 2)
    cell = max(0.2, min(0.52, 6.0 / max(len(rows), len(columns))))
    left, below, above = 0.4 + _label_width(rows), 0.6 + _tick_label_width(columns), 0.45
    width = max(left + CAPTION_WIDTH_IN, left + cell * len(columns) + 0.7)
    height = below + cell * len(rows) + above
    figure = new_figure(width, height)
    _title(figure, left, data["title"].capitalize())
    axes = add_axes_inches(figure, left, below, cell * len(columns), cell * len(rows))
    _hatch_missing(axes)
    heatmap(
        axes,
        np.where(data["possible"], weights, np.nan),
        rows,
        columns,
        label_rows=True,
        label_columns=True,
    )
    axes.tick_params(labelsize=10)
    if cell > 0.36:
        for q, m in np.argwhere(np.asarray(data["possible"], dtype=bool) & (weights >= 0.01)):
            _annotate_cell(
                axes, m, q, f"{floor_to(weights[q, m], 2):.2f}".removeprefix("0"), weights[q, m]
            )
    colorbar(
        figure,
        left + cell * len(columns) + 0.18,
        height - above - min(2.4, cell * len(rows)),
        min(2.4, cell * len(rows)),
    )
    _caption(figure, left, ATTENTION_CAPTIONS[data["kind"]], COLORBAR_NOTE)
    return figure


def cross_attention_by_step(data: Row) -> Figure:
    """Draw the cross-attention weights of every head at each decoding step.

    The rows are the heads of all layers. `data`: columns, heads (names), and steps with written,
    next, right, probability, weights [head][column].

    Raises:
        ValueError: for no steps.
    """
    steps, heads, columns = data["steps"][:MAX_STEPS], data["heads"][:MAX_ROWS], data["columns"]
    if not steps:
        raise ValueError("no token was generated, so there is no step to draw")
    cell = min(0.24, 2.6 / len(columns))
    line = min(0.24, 3.2 / len(heads))
    panel_width = max(cell * len(columns), 1.45)
    across = min(4, len(steps))
    down = math.ceil(len(steps) / across)
    tall = line * len(heads)
    left, gap, title_height = 0.3 + 0.068 * max(map(len, heads)), 0.3, 0.5
    # The color scale needs space next to a single low panel.
    below = 0.5 + (max(0.0, 0.8 - tall) if down == 1 else 0.0)
    width = max(left + CAPTION_WIDTH_IN, left + across * panel_width + (across - 1) * gap + 0.75)
    height = below + down * (tall + title_height + 0.2) + 0.35
    figure = new_figure(width, height)
    _title(figure, left, "Cross-attention, step by step")
    for i, step in enumerate(steps):
        x = left + i % across * (panel_width + gap)
        y = below + (down - 1 - i // across) * (tall + title_height + 0.2) + 0.2
        axes = add_axes_inches(figure, x, y, cell * len(columns), tall)
        heatmap(
            axes,
            step["weights"][: len(heads)],
            heads,
            columns,
            label_rows=i % across == 0,
            label_columns=True,
        )
        for text in axes.get_yticklabels():
            text.set(fontfamily="DejaVu Sans", fontsize=8)
        written = " ".join(step["written"][-6:])
        cut = "… " if len(step["written"]) > 6 else ""
        mark = "" if step["right"] in (None, step["next"]) else f", target: {step['right']}"
        _title_above(axes, f"{cut}{written}", MUTED, 14, MONO)
        _title_above(
            axes,
            f"→ {step['next']}  {format_percent(step['probability'])}{mark}",
            FOREGROUND if not mark else SECONDARY,
            4,
            MONO,
        )
    tall_bar = max(0.8, min(tall, 2.0))
    colorbar(
        figure,
        left + across * panel_width + (across - 1) * gap + 0.15,
        height - 0.35 - title_height - tall_bar,
        tall_bar,
    )
    cut = (
        f"; the first {len(steps)} steps of {len(data['steps'])}"
        if len(steps) < len(data["steps"])
        else ""
    )
    _caption(
        figure,
        left,
        "above: the prefix, and the next generated token with its probability",
        COLORBAR_NOTE + cut,
    )
    return figure


# Ablation


def ablation_ranking(rows: Sequence[Row], title: str = "") -> Figure:
    """Draw the effects of ablations: the drop in log-probability, and the exact match.

    Zero and mean ablation have different markers. At most 24 components are drawn, in the order of
    `rows`: name, how, keep_only, n, exact_match, exact_match_before, log_probability_lost.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no effects to draw; run an ablation first")
    every = list(dict.fromkeys(row["name"] for row in rows))
    names = every[:MAX_BARS]
    keep_only = rows[0]["keep_only"]
    left, bar, below, above = 0.35 + 0.066 * max(map(len, names)), 0.23, 0.75, 0.75
    width, height = left + 5.0, below + bar * len(names) + above
    figure = new_figure(width, height)
    _title(
        figure,
        0.2,
        title or ("Keep-only ablation of heads" if keep_only else "Ablation of each component"),
    )
    lost = style_axes(figure, left, below, 2.6, bar * len(names), "")
    exact = style_axes(figure, left + 2.9, below, 1.75, bar * len(names), "")
    styles: dict[str, dict[str, Any]] = {
        "zero": {"marker": "o", "color": ACCENT},
        "mean": {"marker": "D", "color": SECONDARY, "markerfacecolor": "white"},
    }
    for axes, key in ((lost, "log_probability_lost"), (exact, "exact_match")):
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        for y, name in enumerate(names):
            axes.axhline(y, color=GRID, linewidth=0.5, zorder=0)
            for row in (row for row in rows if row["name"] == name):
                axes.plot(
                    row[key],
                    y,
                    linestyle="",
                    markersize=5,
                    label=row["how"] if y == 0 else None,
                    **styles[row["how"]],
                )
        axes.set_ylim(len(names) - 0.4, -0.6)
    lost.set_yticks(range(len(names)), names)
    lost.tick_params(axis="y", length=0, labelsize=8.5)
    exact.tick_params(axis="y", length=0, labelleft=False)
    lost.set_xscale("symlog", linthresh=0.1, linscale=0.6)
    worst = max([0.1, *(row["log_probability_lost"] for row in rows if row["name"] in names)])
    lost.set_xlim(min(-0.02, *(1.3 * row["log_probability_lost"] for row in rows)), worst * 1.5)
    ticks = [
        0,
        *(10.0**n for n in range(-1, math.ceil(math.log10(worst)) + 1) if 10.0**n < worst * 1.5),
    ]
    max_gain = -lost.get_xlim()[0]
    ticks = [
        *(-(10.0**n) for n in range(math.ceil(math.log10(max_gain)), -2, -1) if 10.0**n < max_gain),
        *ticks,
    ]
    lost.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    lost.xaxis.set_minor_locator(NullLocator())
    lost.set_xlabel("drop in log-probability, in nats", fontsize=9, color=FOREGROUND)
    exact.set_xlim(-0.03, 1.05)
    exact.set_xticks([0, 0.5, 1])
    exact.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    exact.set_xlabel("exact match", fontsize=9, color=FOREGROUND)
    lost.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=2,
        frameon=False,
        fontsize=8.5,
        labelcolor=FOREGROUND,
        title=None,
    )
    before = rows[0]["exact_match_before"]
    exact.axvline(before, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
    exact.text(
        before,
        -0.75,
        f"intact: {format_percent(before)}",
        fontsize=8,
        color=MUTED,
        ha="right",
        va="bottom",
    )
    rest = f"; the first {len(names)} of {len(every)}" if len(every) > len(names) else ""
    replaced = "outputs of all other heads" if keep_only else "output"
    caption = (
        f"{replaced} replaced by zero, or by the mean at each position; "
        f"{rows[0]['n']:,} held-out sequences{rest}"
    )
    _caption(figure, 0.2, caption)
    return figure


# Head patterns


def head_scores(rows: Sequence[Row]) -> Figure:
    """Draw a table of the head scores.

    For each head: the fraction of its attention on each pattern, its entropy, and its distance to
    the task's alignment. `rows` are those of `heads_over_training`, without the step.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no heads to draw")
    every, rows = rows, rows[:MAX_ROWS]
    patterns = [
        "diagonal",
        "anti-diagonal",
        "previous",
        "next",
        "first",
        "last",
        "uniform",
        "aligned",
    ]
    cell, bar = 0.62, 0.24
    left, below, above = 0.3 + 0.066 * max(len(row["name"]) for row in rows), 0.62, 1.0
    width, height = left + cell * (len(patterns) + 2) + 0.3, below + bar * len(rows) + above
    figure = new_figure(width, height)
    _title(figure, 0.2, "Attention patterns of all heads")
    axes = add_axes_inches(figure, left, below, cell * len(patterns), bar * len(rows))
    _hatch_missing(axes)
    table = np.array(
        [[np.nan if row[name] is None else row[name] for name in patterns] for row in rows],
        dtype=float,
    )
    axes.imshow(table, cmap=ATTENTION_CMAP, norm=UNIT_NORM, aspect="auto", interpolation="nearest")
    for y, x in np.argwhere(~np.isnan(table)):
        _annotate_cell(axes, x, y, f"{100 * floor_to(table[y, x], 2):.0f}", table[y, x])
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_xticks(range(len(patterns)), patterns, rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3)
    for column, (key, label) in enumerate((("entropy", "entropy"), ("distance", "distance"))):
        x = (left + cell * (len(patterns) + column + 0.5)) / width
        top = (below + bar * len(rows) + 0.05) / height
        figure.text(
            x - 0.12 / width,
            top,
            label,
            fontsize=8.5,
            color=FOREGROUND,
            rotation=40,
            rotation_mode="anchor",
            ha="left",
            va="bottom",
        )
        for y, row in enumerate(rows):
            text = "" if row[key] is None else f"{row[key]:.2f}"
            figure.text(
                x,
                (below + bar * (len(rows) - y - 0.5)) / height,
                text,
                fontsize=8,
                color=FOREGROUND,
                family=MONO,
                ha="center",
                va="center",
            )
    _caption(
        figure,
        0.2,
        "percent of attention on the pattern; aligned: on the token to copy; hatched: impossible",
        "entropy in nats, 0: one position only; distance to the token to copy, in positions"
        + (f"; the first {len(rows)} heads of {len(every)}" if len(rows) < len(every) else ""),
    )
    return figure


def head_scores_over_training(rows: Sequence[Row]) -> Figure:
    """Draw how the final pattern of each head develops over the steps of a run.

    There is one panel per type of attention and one line per head. `rows`: step, name ("..., layer
    1, head 2"), kind, best, and a fraction for each pattern.

    Raises:
        ValueError: for fewer than two steps.
    """
    steps = sorted({row["step"] for row in rows})
    if len(steps) < 2:
        raise ValueError(f"there are {len(steps)} steps; give the scores of two steps or more")
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    width, tall, gap, below, above = 7.4, 1.55, 0.55, 0.75, 0.35
    height = below + len(kinds) * tall + (len(kinds) - 1) * gap + above
    figure = new_figure(width, height)
    titles = {
        "encoder": "Encoder self-attention",
        "decoder": "Decoder self-attention",
        "cross": "Cross-attention",
    }
    for i, kind in enumerate(kinds):
        last = sorted(
            (row for row in rows if row["kind"] == kind and row["step"] == steps[-1]),
            key=lambda row: -row[row["best"] or "uniform"],
        )
        axes = style_axes(
            figure, 0.6, below + (len(kinds) - 1 - i) * (tall + gap), 4.4, tall, titles[kind]
        )
        for at, final in enumerate(last):
            pattern = final["best"] or "uniform"
            line = [
                row[pattern]
                for row in sorted(rows, key=lambda row: row["step"])
                if row["name"] == final["name"]
            ]
            layer, head = (int(word.split()[-1]) - 1 for word in final["name"].split(", ")[-2:])
            named = at < 8
            label = f"layer {layer + 1}, head {head + 1}: {final['best'] or 'too few positions'}"
            axes.plot(
                steps,
                line,
                color=COLORS[head % len(COLORS)] if named else GRID,
                linestyle=DASHES[layer % len(DASHES)],
                linewidth=1.5 if named else 0.8,
                zorder=3 if named else 1,
                label=label if named else None,
            )
        axes.set_ylim(-0.03, 1.05)
        axes.set_yticks([0, 0.5, 1])
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlim(steps[0], steps[-1])
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
        axes.tick_params(labelbottom=i == len(kinds) - 1)
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.02, 1.08),
            frameon=False,
            fontsize=8,
            labelcolor=FOREGROUND,
            handlelength=2.2,
            borderaxespad=0,
        )
    figure.axes[-1].set_xlabel("step", fontsize=9, color=FOREGROUND)
    _caption(
        figure,
        0.6,
        "percent of a head's attention on its best pattern at the end, relative to uniform "
        "attention; dashes: layers",
    )
    return figure


# Logit lens and logit attribution


def logit_lens(data: Row) -> Figure:
    """Draw the logit lens: the prediction of each decoder layer at each position, teacher-forced.

    `data`: layers, known, columns (the target tokens, or the generated ones unless known), symbols
    [layer][position], probability [layer][position].
    """
    layers, columns = data["layers"], data["columns"][:MAX_POSITIONS]
    probability = np.asarray(data["probability"], dtype=float)[:, :MAX_POSITIONS]
    cell, left, below, above = max(0.42, 0.09 * max(map(len, columns)) + 0.1), 1.05, 0.75, 0.45
    width = max(left + CAPTION_WIDTH_IN, left + cell * len(columns) + 0.75)
    height = below + 0.42 * len(layers) + above
    figure = new_figure(width, height)
    _title(figure, left, "Logit lens: the prediction of each layer")
    axes = add_axes_inches(figure, left, below, cell * len(columns), 0.42 * len(layers))
    upwards = slice(None, None, -1)  # the embedding at the bottom, as models are drawn
    heatmap(
        axes, probability[upwards], layers[upwards], columns, label_rows=True, label_columns=True
    )
    for text in axes.get_yticklabels():
        text.set(fontfamily="DejaVu Sans", fontsize=8.5)
    for y, symbols in enumerate(data["symbols"][upwards]):
        for x, symbol in enumerate(symbols[:MAX_POSITIONS]):
            dark = probability[upwards][y, x] > 0.5
            axes.text(
                x,
                y,
                symbol,
                fontsize=9,
                color="white" if dark else FOREGROUND,
                family=MONO,
                ha="center",
                va="center",
                parse_math=False,
            )
            if symbol != columns[x]:
                axes.add_patch(
                    Rectangle(
                        (x - 0.44, y - 0.42),
                        0.88,
                        0.84,
                        fill=False,
                        edgecolor=SECONDARY,
                        linewidth=1.4,
                    )
                )
    colorbar(figure, left + cell * len(columns) + 0.15, below, 0.42 * len(layers))
    right = "target tokens" if data["has_target"] else "generated tokens"
    caption = f"columns: {right}    cells: the most likely token, framed if it differs"
    cut = (
        f"; the first {len(columns)} positions of {len(data['columns'])}"
        if len(columns) < len(data["columns"])
        else ""
    )
    _caption(figure, left, caption, f"darker: more probable, from 0 to 1{cut}")
    return figure


def contributions(rows: Sequence[Row]) -> Figure:
    """Draw the contributions to the logit difference of the two most likely tokens.

    The last bar is their sum. `rows`: name, position, token, against, logit.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no contributions to draw")
    top_rows = sorted(rows, key=lambda row: -abs(row["logit"]))[:MAX_COMPONENTS]
    bars = [(row["name"], row["logit"]) for row in rows if row in top_rows]
    total = sum(row["logit"] for row in rows)
    if len(bars) < len(rows):
        bars.append(
            (f"{len(rows) - len(bars)} more components", total - sum(value for _, value in bars))
        )
    names, values = [*(name for name, _ in bars), "sum"], [*(value for _, value in bars), total]
    left, bar, below, above = 0.35 + 0.066 * max(map(len, names)), 0.22, 0.75, 0.5
    width, height = left + 4.3, below + bar * len(names) + above
    figure = new_figure(width, height)
    token, against = rows[0]["token"], rows[0]["against"]
    _title(
        figure,
        0.2,
        f"Logit attribution: {token} against {against} at position {rows[0]['position'] + 1}",
    )
    axes = style_axes(figure, left, below, 4.0, bar * len(names), "")
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    colors = [ACCENT if value >= 0 else SECONDARY for value in values[:-1]] + [FOREGROUND]
    axes.barh(range(len(names)), values, height=0.62, color=colors)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    reach = max(abs(value) for value in values) or 1.0
    for y, value in enumerate(values):
        at, side = (
            (value + 0.015 * reach, "left") if value >= 0 else (value - 0.015 * reach, "right")
        )
        text = f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")
        axes.text(at, y, text, fontsize=8, color=FOREGROUND, va="center", ha=side)
    axes.set_xlim(min(0, *values) - 0.17 * reach, max(0, *values) + 0.17 * reach)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    labels = f"logit of {token} minus logit of {against}, with a frozen scale of the final norm"
    axes.set_xlabel(labels, fontsize=9, color=FOREGROUND, parse_math=False)
    return figure


# Position vectors


def positions(data: Row) -> Figure:
    """Draw the position vectors of source and target as heatmaps, negative orange, positive blue.

    `data`: kind, source PD, target PD.
    """
    sides = {
        "source": np.asarray(data["source"], dtype=float),
        "target": np.asarray(data["target"], dtype=float),
    }
    reach = max(float(np.abs(matrix).max()) for matrix in sides.values()) or 1.0
    tall = [max(0.9, min(3.0, 0.16 * len(matrix))) for matrix in sides.values()]
    width, below, gap, above = 7.2, 0.5, 0.75, 0.5
    height = below + sum(tall) + gap + above
    figure = new_figure(width, height)
    kind = "sinusoidal" if data["kind"] == "sinusoidal" else "learned"
    bottom = height - above
    for (side, matrix), each in zip(sides.items(), tall, strict=True):
        bottom -= each
        axes = add_axes_inches(figure, 0.65, bottom, width - 1.45, each)
        _diverging_heatmap(axes, matrix, reach)
        counted = (
            ", counted from the end"
            if data["kind"] == "learned-from-end" and side == "source"
            else ""
        )
        axes.set_title(
            f"Position vectors of the {side}: {kind}{counted}",
            loc="left",
            fontsize=9.5,
            color=FOREGROUND,
            fontweight="bold",
            pad=6,
        )
        bottom -= gap
    figure.axes[-1].set_xlabel("dimension", fontsize=9, color=FOREGROUND)
    _diverging_colorbar(figure, width - 0.65, height - above - tall[0], tall[0], reach)
    return figure


def sinusoidal_table(data: Row) -> Figure:
    """Draw the sinusoidal position vectors, and some dimensions as curves with their wavelengths.

    `data`: matrix PD, d_model, waves with dimension and wavelength.
    """
    matrix = np.asarray(data["matrix"], dtype=float)
    n, each = len(matrix), 0.78
    width, below, above, map_height = 7.2, 0.5, 0.4, 2.6
    height = below + each * len(data["waves"]) + 0.5 + map_height + above
    figure = new_figure(width, height)
    axes = add_axes_inches(figure, 0.65, height - above - map_height, width - 1.45, map_height)
    _diverging_heatmap(axes, matrix.T, 1.0, down="dimension")
    title = f"Sinusoidal position vectors: {n} positions, {data['d_model']} dimensions"
    axes.set_title(title, loc="left", fontsize=9.5, color=FOREGROUND, fontweight="bold", pad=6)
    _diverging_colorbar(figure, width - 0.65, height - above - map_height, map_height, 1.0)
    for i, wave in enumerate(data["waves"]):
        axes = add_axes_inches(
            figure, 0.65, below + each * (len(data["waves"]) - 1 - i), width - 1.45, each - 0.3
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.plot(
            range(n),
            matrix[:, wave["dimension"]],
            color=ACCENT,
            linewidth=1.2,
            marker="o",
            markersize=1.6,
        )
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(-1.15, 1.15)
        axes.set_yticks([-1, 1])
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
        axes.tick_params(labelbottom=i == len(data["waves"]) - 1)
        length = (
            f"{wave['wavelength']:,.0f}"
            if wave["wavelength"] >= 100
            else f"{wave['wavelength']:.1f}"
        )
        _title_above(
            axes,
            f"dimension {wave['dimension']} repeats after {length} positions",
            FOREGROUND,
            3,
            "DejaVu Sans",
        )
    axes.set_xlabel("position", fontsize=9, color=FOREGROUND)
    return figure


# Files


FIGURES: dict[str, Callable[[Any], Figure]] = {
    "encoder-attention": attention_grid,
    "decoder-attention": attention_grid,
    "cross-attention": attention_grid,
    "head": single_head,
    "cross-attention-by-step": cross_attention_by_step,
    "ablation": ablation_ranking,
    "ablation-groups": lambda rows: ablation_ranking(rows, "Ablation of each group"),
    "keep-only": ablation_ranking,
    "head-scores": head_scores,
    "heads-over-training": head_scores_over_training,
    "logit-lens": logit_lens,
    "contributions": contributions,
    "positions": positions,
    "sine-waves": sinusoidal_table,
    "loss": lambda rows: training_curve(
        [{name: value for name, value in row.items() if value is not None} for row in rows]
    ),
    "exact-match-by-length": exact_match_by_length,
}


def write(folder: Path, name: str, data: Any) -> list[Path]:
    """Draw the figure of this name as .png, .svg and .pdf, and write its data.

    Tables are written as .csv, other data as .json.
    """
    figure = FIGURES[name](data)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
    for path in paths:
        save(figure, path)
    if isinstance(data, list):
        paths.append(folder / f"{name}.csv")
        with open(paths[-1], "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(data[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(data)
    else:
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(data, ensure_ascii=False) + "\n", encoding="utf-8")
    return paths


def _crop_to_labels(data: Row, dimensions: int) -> tuple[Any, Sequence[str], Sequence[str]]:
    """Return the weights as an array, and the labels of its last two dimensions."""
    weights, rows, columns = np.asarray(data["weights"], dtype=float), data["rows"], data["columns"]
    if (
        weights.ndim != dimensions
        or weights.shape[-2:] != (len(rows), len(columns))
        or not weights.size
    ):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(rows)} rows and {len(columns)} "
            f"columns; give {dimensions} dimensions, the last two rows × columns"
        )
    return weights, rows, columns


def _title(figure: Figure, left: float, text: str) -> None:
    width, height = figure.get_size_inches()
    figure.text(
        left / width,
        1 - 0.12 / height,
        text,
        fontsize=10.5,
        color=FOREGROUND,
        fontweight="bold",
        ha="left",
        va="top",
        parse_math=False,
    )


def _caption(figure: Figure, left: float, *lines: str) -> None:
    width, height = figure.get_size_inches()
    figure.text(
        left / width,
        0.1 / height,
        "\n".join(lines),
        fontsize=8,
        color=MUTED,
        ha="left",
        va="bottom",
        linespacing=1.4,
        parse_math=False,
    )


def _title_above(axes: Axes, text: str, color: str, points: float, family: str) -> None:
    """Add a line of text, `points` above the left corner of a panel."""
    axes.annotate(
        text,
        (0, 1),
        xytext=(0, points),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=color,
        family=family,
        ha="left",
        va="bottom",
        parse_math=False,
        annotation_clip=False,
    )


def _annotate_cell(axes: Axes, x: float, y: float, text: str, intensity: float) -> None:
    """Add a number to a cell of `heatmap`, in white if the cell is dark."""
    axes.text(
        x,
        y,
        text,
        fontsize=7.5,
        color="white" if intensity > 0.5 else FOREGROUND,
        ha="center",
        va="center",
    )


def _hatch_missing(axes: Axes) -> None:
    """Hatch the background, which is visible in cells without a number."""
    axes.patch.set(facecolor="white", hatch="//////", edgecolor="#c3c9d1", linewidth=0)


def _label_width(labels: Sequence[str]) -> float:
    """Return the inches that the longest row label needs."""
    return 0.075 * max(map(len, labels))


def _tick_label_width(labels: Sequence[str]) -> float:
    """Return the inches that the column labels need; long labels are vertical."""
    max_characters = max(map(len, labels))
    return 0.18 if max_characters <= 3 else 0.08 * max_characters


def _diverging_heatmap(axes: Axes, matrix: Any, reach: float, down: str = "position") -> None:
    """Draw numbers from -reach to reach as cells."""
    axes.imshow(
        matrix,
        cmap=DIVERGING_CMAP,
        norm=Normalize(-reach, reach),
        aspect="auto",
        interpolation="nearest",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylabel(down, fontsize=9, color=FOREGROUND)


def _diverging_colorbar(
    figure: Figure, left: float, bottom: float, height: float, reach: float
) -> None:
    """Add the color scale of `_signed`."""
    axes = add_axes_inches(figure, left, bottom, 0.11, height)
    bar = figure.colorbar(
        ScalarMappable(Normalize(-reach, reach), DIVERGING_CMAP), cax=axes, ticks=[-reach, 0, reach]
    )
    bar.ax.set_yticklabels([f"−{reach:.2g}", "0", f"{reach:.2g}"])
    bar.outline.set(edgecolor=MUTED, linewidth=0.6)
    axes.tick_params(length=2, labelsize=8, labelcolor=FOREGROUND)
