"""Figures of the attention patterns of heads.

Each takes the plain data that `python -m playground inspect` writes next to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from playground.common.stats import floor_to

from .style import (
    ATTENTION_CMAP,
    COLORS,
    DASHES,
    GRID,
    HATCH,
    MONO,
    UNIT_NORM,
    add_legend,
    annotate_cell,
    label_axis,
    new_figure,
    set_caption,
    set_percent_axis,
    set_step_axis,
    style_axes,
    style_chart,
)

Row = Mapping[str, Any]
MAX_HEADS = 96
MAX_NAMED = 8  # lines with a color and a name in one panel
PATTERNS = ("diagonal", "anti-diagonal", "previous", "next", "first", "last", "uniform", "aligned")
NUMBERS = ("entropy", "distance")
KINDS = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


def head_scores(rows: Sequence[Row]) -> Figure:
    """Draw a table of the head scores.

    For each head: the fraction of its attention on each pattern, its entropy, and its distance to
    the task's alignment. `rows` are those of `heads_over_training`, without the step.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no heads to draw")
    drawn = rows[:MAX_HEADS]
    figure = new_figure(0.24 * len(drawn) + 1.7, 9.0, "Attention patterns of all heads")
    axes = style_axes(figure.subplots())
    fractions = np.array([[row[name] for name in PATTERNS] for row in drawn], dtype=float)
    axes.imshow(
        fractions, cmap=ATTENTION_CMAP, norm=UNIT_NORM, aspect="auto", interpolation="nearest"
    )
    axes.add_patch(
        Rectangle(
            (-0.5, -0.5),
            len(PATTERNS),
            len(drawn),
            facecolor="white",
            edgecolor=HATCH,
            hatch="//////",
            linewidth=0,
            zorder=-1,
        )
    )
    for y, x in np.argwhere(~np.isnan(fractions)):
        annotate_cell(axes, x, y, f"{100 * floor_to(fractions[y, x], 2):.0f}", fractions[y, x])
    for y, row in enumerate(drawn):
        for x, name in enumerate(NUMBERS, start=len(PATTERNS)):
            text = "" if row[name] is None else f"{row[name]:.2f}"
            annotate_cell(axes, x, y, text, 0.0, fontsize=8, family=MONO)
    columns = [*PATTERNS, *NUMBERS]
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(drawn)), [row["name"] for row in drawn])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3)
    is_cut = len(drawn) < len(rows)
    set_caption(
        figure,
        "percent of attention on the pattern; aligned: on the token to copy; hatched: impossible",
        "entropy in nats, 0: one position only; distance to the token to copy, in positions"
        + (f"; the first {len(drawn)} heads of {len(rows)}" if is_cut else ""),
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
    figure = new_figure(1.95 * len(kinds) + 0.8)
    panels = figure.subplots(len(kinds), 1, sharex=True, squeeze=False).flat
    for kind, axes in zip(kinds, panels, strict=True):
        style_chart(axes, KINDS[kind])
        _draw_head_lines(axes, [row for row in rows if row["kind"] == kind], steps)
        set_percent_axis(axes.yaxis)
        axes.set_xlim(steps[0], steps[-1])
        add_legend(
            axes,
            loc="upper left",
            bbox_to_anchor=(1.02, 1.08),
            fontsize=8,
            handlelength=2.2,
            borderaxespad=0,
        )
    set_step_axis(axes.xaxis, 6)
    label_axis(axes.xaxis, "step")
    set_caption(
        figure,
        "percent of a head's attention on its best pattern at the end, relative to uniform "
        "attention; dashes: layers",
    )
    return figure


def _draw_head_lines(axes: Axes, rows: Sequence[Row], steps: Sequence[int]) -> None:
    """Draw a line for each head, from its scores at all steps; the best ones have a name."""
    final_rows = sorted(
        (row for row in rows if row["step"] == steps[-1]),
        key=lambda row: -row[row["best"] or "uniform"],
    )
    for i, final in enumerate(final_rows):
        pattern = final["best"] or "uniform"
        history = sorted(
            (row for row in rows if row["name"] == final["name"]), key=lambda row: row["step"]
        )
        layer, head = (int(word.split()[-1]) - 1 for word in final["name"].split(", ")[-2:])
        is_named = i < MAX_NAMED
        label = f"layer {layer + 1}, head {head + 1}: {final['best'] or 'too few positions'}"
        axes.plot(
            steps,
            [row[pattern] for row in history],
            color=COLORS[head % len(COLORS)] if is_named else GRID,
            linestyle=DASHES[layer % len(DASHES)],
            linewidth=1.5 if is_named else 0.8,
            zorder=3 if is_named else 1,
            label=label if is_named else None,
        )
