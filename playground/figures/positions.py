"""Figures of position vectors, with negative numbers in orange and positive ones in blue.

Shapes of arrays: P positions, D dimensions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .style import (
    ACCENT,
    FOREGROUND,
    add_diverging_colorbar,
    add_text_above,
    draw_diverging_heatmap,
    label_axis,
    new_figure,
    set_step_axis,
    style_axes,
)


def positions(data: Mapping[str, Any]) -> Figure:
    """Draw the position vectors of source and target as heat maps.

    `data`: kind, source PD, target PD.
    """
    sides = {side: np.asarray(data[side], dtype=float) for side in ("source", "target")}
    reach = max(float(np.abs(matrix).max()) for matrix in sides.values()) or 1.0
    heights = [max(0.9, min(3.0, 0.16 * len(matrix))) for matrix in sides.values()]
    figure = new_figure(sum(heights) + 1.4)
    panels = figure.subplots(2, 1, height_ratios=heights)
    kind = "sinusoidal" if data["kind"] == "sinusoidal" else "learned"
    for (side, matrix), axes in zip(sides.items(), panels, strict=True):
        draw_diverging_heatmap(axes, matrix, reach)
        label_axis(axes.yaxis, "position")
        is_from_end = data["kind"] == "learned-from-end" and side == "source"
        counted = ", counted from the end" if is_from_end else ""
        style_axes(axes, f"Position vectors of the {side}: {kind}{counted}")
        add_diverging_colorbar(axes, reach)
    label_axis(axes.xaxis, "dimension")
    return figure


def sinusoidal_table(data: Mapping[str, Any]) -> Figure:
    """Draw the sinusoidal position vectors, and some dimensions as curves with their wavelengths.

    `data`: matrix PD, d_model, waves with dimension and wavelength.
    """
    matrix, waves = np.asarray(data["matrix"], dtype=float), data["waves"]
    n = len(matrix)
    figure = new_figure(3.4 + 0.78 * len(waves))
    table, *curves = figure.subplots(1 + len(waves), 1, height_ratios=[2.6, *[0.48] * len(waves)])
    draw_diverging_heatmap(table, matrix.T, 1.0)
    label_axis(table.yaxis, "dimension")
    style_axes(table, f"Sinusoidal position vectors: {n} positions, {data['d_model']} dimensions")
    add_diverging_colorbar(table, 1.0)
    for wave, axes in zip(waves, curves, strict=True):
        style_axes(axes)
        axes.spines[["top", "right"]].set_visible(False)
        values = matrix[:, wave["dimension"]]
        axes.plot(range(n), values, color=ACCENT, linewidth=1.2, marker="o", markersize=1.6)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(-1.15, 1.15)
        axes.set_yticks([-1, 1])
        set_step_axis(axes.xaxis)
        axes.tick_params(labelbottom=axes is curves[-1])
        digits = 0 if wave["wavelength"] >= 100 else 1
        length = f"{wave['wavelength']:,.{digits}f}"
        text = f"dimension {wave['dimension']} repeats after {length} positions"
        add_text_above(axes, text, FOREGROUND, 3)
    label_axis(axes.xaxis, "position")
    return figure
