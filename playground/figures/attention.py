"""Figures of attention weights.

Each takes the plain data that `python -m playground inspect` writes next to it.

Shapes of arrays: L layers, H heads, Q queries (rows), M keys (columns).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from playground.common.format import format_percent
from playground.common.stats import floor_to

from .style import (
    FOREGROUND,
    MONO,
    MUTED,
    SANS,
    SECONDARY,
    add_colorbar,
    add_text_above,
    annotate_cell,
    draw_heatmap,
    label_axis,
    new_figure,
    set_caption,
    size_panels,
)

Row = Mapping[str, Any]

CAPTIONS = {
    "encoder": "rows: source tokens (queries)    columns: source tokens (keys)",
    "decoder": "rows: decoder input (queries)    columns: decoder input (keys); "
    "masked positions are hatched",
    "cross": "rows: the target token that each query predicts    columns: source tokens (keys)",
}
COLORBAR_NOTE = "darker: more attention, from 0 to 1; every row sums to 1"
MAX_PANEL_IN, MIN_PANEL_IN, MAX_CELL_IN = 4.0, 1.25, 0.36
MAX_HEAD_IN = 6.0  # of a single head
# The most that one figure draws.
MAX_LAYERS, MAX_HEADS = 8, 16
MAX_STEPS = 24
MAX_ROWS = 96
STEPS_PER_ROW = 4
MIN_STEP_WIDTH_IN, MIN_STEP_HEIGHT_IN = 1.6, 0.5  # the text above a panel fits its width


def attention_grid(data: Row) -> Figure:
    """Draw a heat map for each head of one type of attention, with one row of them per layer.

    Masked cells are hatched. `data`: kind, title, rows, columns, weights LHQM, possible QM.

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    every, rows, columns = _check_labels(data, 4)
    weights = every[:MAX_LAYERS, :MAX_HEADS]
    layers, heads = weights.shape[:2]
    visible_LHQM = np.where(np.asarray(data["possible"], dtype=bool), weights, np.nan)
    is_cut = weights.size < every.size
    cut = f"; the first {heads} heads of the first {layers} layers" if is_cut else ""
    return draw_heads(
        visible_LHQM,
        rows,
        columns,
        data["title"].capitalize(),
        (CAPTIONS[data["kind"]], COLORBAR_NOTE + cut),
    )


def cross_attention(weights_LHQM: Any, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Draw the cross-attention weights of every head, without a title.

    `rows` are the tokens that the queries predict, `columns` the source tokens.

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    data = {"weights": weights_LHQM, "rows": rows, "columns": columns}
    weights, _, _ = _check_labels(data, 4)
    return draw_heads(weights, rows, columns, "", (CAPTIONS["cross"], COLORBAR_NOTE))


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

    Raises:
        ValueError: if the labels do not fit the weights.
    """
    weights, rows, columns = _check_labels(data, 2)
    visible_QM = np.where(np.asarray(data["possible"], dtype=bool), weights, np.nan)
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


def cross_attention_by_step(data: Row) -> Figure:
    """Draw the cross-attention weights of every head at each decoding step.

    The rows are the heads of all layers. `data`: columns, heads (names), and steps with prefix,
    next, right, probability, weights [head][column].

    Raises:
        ValueError: for no steps.
    """
    steps, heads, columns = data["steps"][:MAX_STEPS], data["heads"][:MAX_ROWS], data["columns"]
    if not steps:
        raise ValueError("no token was generated, so there is no step to draw")
    across = min(STEPS_PER_ROW, len(steps))
    down = math.ceil(len(steps) / across)
    width = max(MIN_STEP_WIDTH_IN, min(0.24 * len(columns), 2.6))
    height = max(MIN_STEP_HEIGHT_IN, min(0.24 * len(heads), 3.2))
    cell = width / len(columns), height / len(heads)
    figure = new_figure(title="Cross-attention, step by step")
    panels: Any = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat[len(steps) :]:
        axes.set_visible(False)
    for i, (step, axes) in enumerate(zip(steps, panels.flat, strict=False)):
        weights = step["weights"][: len(heads)]
        draw_heatmap(axes, weights, heads if i % across == 0 else None, columns, cell)
        for text in axes.get_yticklabels():
            text.set(fontfamily=SANS)
        _title_step(axes, step)
    add_colorbar(panels[0, -1], height)
    is_cut = len(steps) < len(data["steps"])
    cut = f"; the first {len(steps)} steps of {len(data['steps'])}" if is_cut else ""
    set_caption(
        figure,
        "above: the prefix, and the next generated token with its probability",
        COLORBAR_NOTE + cut,
    )
    size_panels(figure, panels, width, height)
    return figure


def _title_step(axes: Any, step: Row) -> None:
    """Write the prefix of a step above its panel, and the next token below the prefix."""
    cut = "… " if len(step["prefix"]) > 6 else ""
    is_wrong = step["target"] not in (None, step["token"])
    mark = f", target: {step['target']}" if is_wrong else ""
    add_text_above(axes, cut + " ".join(step["prefix"][-6:]), MUTED, 14, MONO)
    add_text_above(
        axes,
        f"→ {step['token']}  {format_percent(step['probability'])}{mark}",
        SECONDARY if is_wrong else FOREGROUND,
        4,
        MONO,
    )


def _check_labels(data: Row, dimensions: int) -> tuple[Any, Sequence[str], Sequence[str]]:
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
