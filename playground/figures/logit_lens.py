"""The figure of the logit lens."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .style import (
    MONO,
    SANS,
    SECONDARY,
    add_colorbar,
    annotate_cell,
    draw_heatmap,
    new_figure,
    set_caption,
    size_panels,
)

MAX_POSITIONS = 40
CELL_IN = 0.42


def logit_lens(data: Mapping[str, Any]) -> Figure:
    """Draw the logit lens: the prediction of each decoder layer at each position, teacher-forced.

    `data`: layers, has_target, columns (the target tokens, or the generated ones without a target),
    symbols [layer][position], probability [layer][position].
    """
    columns = data["columns"][:MAX_POSITIONS]
    # The embedding is at the bottom, as models are drawn.
    layers, tokens = data["layers"][::-1], data["tokens"][::-1]
    probability: Any = np.asarray(data["probability"], dtype=float)[::-1, :MAX_POSITIONS]
    cell = max(CELL_IN, 0.09 * max(map(len, columns)) + 0.1)
    width, height = cell * len(columns), CELL_IN * len(layers)
    figure = new_figure(title="Logit lens: the prediction of each layer")
    panels = figure.subplots(1, 1, squeeze=False)
    axes = panels[0, 0]
    draw_heatmap(axes, probability, layers, columns, (cell, CELL_IN))
    for text in axes.get_yticklabels():
        text.set(fontfamily=SANS, fontsize=8.5)
    for y, x in np.ndindex(*probability.shape):
        annotate_cell(axes, x, y, tokens[y][x], probability[y, x], fontsize=9, family=MONO)
        if tokens[y][x] != columns[x]:
            frame = Rectangle((x - 0.44, y - 0.42), 0.88, 0.84, fill=False)
            frame.set(edgecolor=SECONDARY, linewidth=1.4)
            axes.add_patch(frame)
    add_colorbar(axes, height)
    tokens = "target tokens" if data["has_target"] else "generated tokens"
    is_cut = len(columns) < len(data["columns"])
    cut = f"; the first {len(columns)} positions of {len(data['columns'])}" if is_cut else ""
    set_caption(
        figure,
        f"columns: {tokens}    cells: the most likely token, framed if it differs",
        f"darker: more probable, from 0 to 1{cut}",
    )
    size_panels(figure, panels, width, height)
    return figure
