"""Figures of the effects of single components: ablation, and logit attribution.

Each takes the plain data that `python -m playground inspect` writes next to it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from playground.common.format import format_percent

from .style import (
    ACCENT,
    FOREGROUND,
    GRID,
    MUTED,
    SECONDARY,
    add_legend,
    label_axis,
    new_figure,
    set_caption,
    set_percent_axis,
    style_chart,
)

Row = Mapping[str, Any]
MAX_BARS = 24
MAX_COMPONENTS = 60
LINE_IN = 0.23  # per component
MARKERS: dict[str, dict[str, Any]] = {
    "zero": {"marker": "o", "color": ACCENT},
    "mean": {"marker": "D", "color": SECONDARY, "markerfacecolor": "white"},
}


def ablation_ranking(rows: Sequence[Row], title: str = "") -> Figure:
    """Draw the effects of ablations: the drop in log-probability, and the exact match.

    Zero and mean ablation have different markers. At most 24 components are drawn, in the order of
    `rows`: name, method, keep_only, n, exact_match, exact_match_before, log_probability_drop.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no effects to draw; run an ablation first")
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
    add_legend(drop, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)
    set_percent_axis(exact.xaxis)
    label_axis(exact.xaxis, "exact match")
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
    set_caption(
        figure,
        f"{replaced} replaced by zero, or by the mean at each position; "
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


def contributions(rows: Sequence[Row]) -> Figure:
    """Draw the contributions to the logit difference of the two most likely tokens.

    The last bar is their sum. `rows`: name, position, token, baseline_token, logit.

    Raises:
        ValueError: for no rows.
    """
    if not rows:
        raise ValueError("there are no contributions to draw")
    bars = _largest_contributions(rows)
    names, values = [name for name, _ in bars], [value for _, value in bars]
    token, baseline = rows[0]["token"], rows[0]["baseline_token"]
    title = f"Logit attribution: {token} against {baseline} at position {rows[0]['position'] + 1}"
    figure = new_figure(LINE_IN * len(names) + 1.0, title=title)
    axes = style_chart(figure.subplots(), grid="x")
    colors = [ACCENT if value >= 0 else SECONDARY for value in values[:-1]] + [FOREGROUND]
    axes.barh(range(len(names)), values, height=0.62, color=colors)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    reach = max(abs(value) for value in values) or 1.0
    for y, value in enumerate(values):
        text = f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")
        gap, side = (0.015, "left") if value >= 0 else (-0.015, "right")
        axes.text(value + gap * reach, y, text, fontsize=8, color=FOREGROUND, va="center", ha=side)
    axes.set_xlim(min(0, *values) - 0.17 * reach, max(0, *values) + 0.17 * reach)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    label_axis(
        axes.xaxis,
        f"logit of {token} minus logit of {baseline}, with a frozen scale of the final norm",
    )
    return figure


def _largest_contributions(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """Return the largest contributions in the order of `rows`, the rest as one, and the sum."""
    largest = sorted(rows, key=lambda row: -abs(row["logit"]))[:MAX_COMPONENTS]
    bars = [(row["name"], row["logit"]) for row in rows if row in largest]
    total = sum(row["logit"] for row in rows)
    if len(bars) < len(rows):
        rest = total - sum(value for _, value in bars)
        bars.append((f"{len(rows) - len(bars)} more components", rest))
    return [*bars, ("sum", total)]
