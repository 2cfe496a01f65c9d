"""The picture of a model that other sites show beside its link: 1200 × 630 pixels.

The page paints the same from the same data (ui/static/train/share_picture.js).
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from playground.figures.style import (
    ACCENT,
    DPI,
    FOREGROUND,
    MUTED,
    SECONDARY,
    TOKEN_FONTS,
    label_of,
    render,
    set_percent_axis,
    set_step_axis,
    style_chart,
)

WIDTH, HEIGHT = 1200, 630  # pixels, as sites show pictures of links
RIGHT_COLOR, WRONG_COLOR = "#1a7f4b", "#b42318"
MIN_WEIGHT = 20  # thousandths
MAX_TOKENS = 40  # that fit; a longer example is left out
CURVE = np.linspace(0, 1, 30)


def render_card(card: dict[str, Any]) -> dict[str, bytes]:
    """Return {"png": picture}: the call of the app, in a process of its own.

    `card` has the texts `name`, `result` and `address`, `evaluations` with step and exact match,
    and `snapshot` with `probe_info` if an example exists.
    """
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), facecolor="white")
    texts: tuple[tuple[float, float, str, dict[str, Any]], ...] = (
        (0.045, 0.885, card["name"], {"fontsize": 20, "weight": "bold", "color": FOREGROUND}),
        (0.045, 0.79, card["result"], {"fontsize": 11.5, "color": MUTED}),
        (0.045, 0.04, card["address"], {"fontsize": 9.5, "color": MUTED}),
        (0.955, 0.04, "Transformer Playground", {"fontsize": 9.5, "color": ACCENT, "ha": "right"}),
    )
    for x, y, text, style in texts:
        figure.text(x, y, shorten(text), parse_math=False, **style)
    curve = figure.add_axes((0.56, 0.17, 0.395, 0.5))
    style_chart(curve, "Unseen sequences right")
    steps, scores = [[row[i] for row in card["evaluations"]] for i in (0, 1)]
    curve.plot(steps, scores, color=ACCENT, linewidth=2.6)
    curve.plot(steps[-1:], scores[-1:], "o", color=ACCENT)
    curve.set_xlim(0, max(steps, default=1))
    set_percent_axis(curve.yaxis)
    set_step_axis(curve.xaxis)
    if card.get("snapshot"):
        _draw_example(figure.add_axes((0.045, 0.11, 0.42, 0.62)), card)
    return {"png": render(figure, "png")}


def shorten(text: str, count: int = 84) -> str:
    """Return a text of one line that fits."""
    return text if len(text) <= count else text[: count - 1] + "…"


def _draw_example(axes: Axes, card: dict[str, Any]) -> None:
    """Draw the links of the last head that the diagram shows first, from input to output."""
    info, snapshot = card["probe_info"], card["snapshot"]
    kinds = [kind for kind in ("cross", "decoder", "encoder") if snapshot["attention"].get(kind)]
    axes.set_axis_off()
    if not kinds:
        return
    queries, keys = info["axes"][kinds[0]]
    weights = np.reshape(snapshot["attention"][kinds[0]][-1][0], (len(queries), len(keys)))
    rows = max(len(queries), len(keys))
    if rows > MAX_TOKENS:
        return
    axes.set(xlim=(0, 1), ylim=(rows, 0))
    left, right = [
        [(rows - len(tokens)) / 2 + i + 0.5 for i in range(len(tokens))]
        for tokens in (keys, queries)
    ]
    for query, key in zip(*np.nonzero(weights >= MIN_WEIGHT), strict=True):
        weight = weights[query, key] / 1000
        y = left[key] + (right[query] - left[key]) * (1 - np.cos(np.pi * CURVE)) / 2
        style: dict[str, Any] = {"color": SECONDARY, "alpha": 0.12 + 0.88 * weight}
        axes.plot(0.16 + 0.66 * CURVE, y, linewidth=0.4 + 4 * weight, **style)
    output = dict(enumerate(_output(snapshot["probe"], len(queries))))
    for i, token in enumerate(keys):
        _write(axes, 0.0, left[i], token, FOREGROUND, "left", rows)
    for i, query in enumerate(queries):
        token, color = output.get(i) or (query, FOREGROUND)
        _write(axes, 1.0, right[i], token, color, "right", rows)


def _output(probe: dict[str, Any] | None, count: int) -> list[tuple[str, str] | None]:
    """Return what the model predicts beside each query, with its color; None before the output."""
    if probe is None:
        return []
    pairs = zip(probe["predicted"], probe["target"], strict=True)
    output = [(token, RIGHT_COLOR if token == target else WRONG_COLOR) for token, target in pairs]
    return [None] * (count - len(output)) + output


def _write(axes: Axes, x: float, y: float, token: str, color: str, side: Any, rows: int) -> None:
    size = min(14.0, 130 / rows)
    style: dict[str, Any] = {
        "fontfamily": TOKEN_FONTS,
        "fontsize": size,
        "color": color,
        "parse_math": False,
    }
    axes.text(x, y, shorten(label_of(token), 12), ha=side, va="center", **style)
