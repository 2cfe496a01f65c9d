"""Colors, layout, heat maps and files: what all figures share.

Matplotlib's layout engine computes the space of titles, labels and legends. A figure shows measured
numbers only, is drawn for 150 dots per inch, and labels its axes in words.
"""

import io
import math
import threading
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter
from matplotlib.transforms import Bbox

from playground.tasks.vocabulary import format_token

FOREGROUND, MUTED, GRID = "#1c2530", "#565d69", "#dfe3e8"
ACCENT, SECONDARY = "#1f6fb2", "#b35c00"  # distinguishable without color vision, and by dashes
HATCH = "#c3c9d1"
TOKEN_FONTS = ("DejaVu Sans Mono", "DejaVu Sans")  # part of matplotlib: equal on every machine
DPI = 150
WIDTH_IN = 7.4  # of a figure with curves or bars
MIN_WIDTH_IN = 6.6  # the longest line of a caption fits in it
MIN_LABEL_IN = 0.145  # per label along an axis
PADDING_IN = 0.06  # around every panel
MAX_LAYOUTS = 4  # attempts to reach the size of a panel
COLORBAR_WIDTH_IN, COLORBAR_GAP_IN = 0.11, 0.14
MIN_COLORBAR_IN, MAX_COLORBAR_IN = 0.5, 2.4

# From paper to ink in equal steps of lightness (CIELAB L* decreases by 10.3 per step), so that
# equal differences look equal.
ATTENTION_CMAP = LinearSegmentedColormap.from_list(
    "paper to ink",
    [
        *("#ffffff", "#d2e4f3", "#a1cbe5", "#76b0d7", "#4d94c8"),
        *("#3277b5", "#195ba1", "#10427e", "#082a5c"),
    ],
)
UNIT_NORM = Normalize(0, 1)
# The file types of figures, with metadata that omits the date and the version.
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

# The salt of SVG ids is a global setting of matplotlib.
_render_lock = threading.Lock()


# Figures


def new_figure(height: float = 1.0, width: float = WIDTH_IN, title: str = "") -> Figure:
    """Create an empty white figure; sizes are in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    _set_layout(figure, "constrained")
    if title:
        style: dict[str, Any] = {"fontsize": 10.5, "fontweight": "bold", "color": FOREGROUND}
        figure.suptitle(title, x=0.012, ha="left", parse_math=False, **style)
    return figure


def set_caption(figure: Figure, *lines: str) -> None:
    """Add lines of small text below the panels; none is possible."""
    if lines:
        style: dict[str, Any] = {"fontsize": 8, "color": MUTED, "linespacing": 1.4}
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", parse_math=False, **style)


def size_panels(figure: Figure, panels: Any, width: float, height: float) -> None:
    """Resize a figure so that every panel of a grid has this size in inches.

    The layout engine adds the margins. A figure with a caption is at least as wide as that.
    """
    shape = np.array(panels.shape[::-1])
    panel = np.array([width, height])
    figure.set_size_inches(shape * (panel + 1) + 1)  # large enough for any margins
    for _ in range(MAX_LAYOUTS):
        _apply_layout(figure)
        size = figure.get_size_inches()
        measured = panels[0, 0].get_position().size * size
        if np.allclose(measured, panel, rtol=0.02):
            break
        figure.set_size_inches(size + shape * (panel - measured))
    if figure.get_supxlabel() and figure.get_size_inches()[0] < MIN_WIDTH_IN:
        for axes in panels.flat:
            axes.set_box_aspect(height / width)
        figure.set_size_inches(MIN_WIDTH_IN, figure.get_size_inches()[1])
        _set_layout(figure, "compressed")
        _apply_layout(figure)
    figure.set_layout_engine("none")  # the layout is final


def _set_layout(figure: Figure, layout: Literal["constrained", "compressed"]) -> None:
    figure.set_layout_engine(layout, w_pad=PADDING_IN, h_pad=PADDING_IN, wspace=0.0, hspace=0.0)


def _apply_layout(figure: Figure) -> None:
    engine: Any = figure.get_layout_engine()
    engine.execute(figure)


def render(figure: Figure, kind: str) -> bytes:
    """Return the content of a file of this format; equal figures give equal bytes."""
    content = io.BytesIO()
    with _render_lock, matplotlib.rc_context({"svg.hashsalt": "transformer-playground"}):
        figure.savefig(content, format=kind, dpi=DPI, metadata=FORMATS[kind])
    return content.getvalue()


# Axes


def style_axes(axes: Axes, title: str = "") -> Axes:
    """Give axes a thin frame, and a title."""
    axes.tick_params(length=3, width=0.6, color=MUTED, labelcolor=FOREGROUND, labelsize=8.5)
    axes.spines[:].set(color=MUTED, linewidth=0.6)
    if title:
        axes.set_title(title, loc="left", fontsize=9.5, color=FOREGROUND, fontweight="bold", pad=7)
    return axes


def style_chart(axes: Axes, title: str = "", grid: str = "y") -> Axes:
    """Give axes of curves or bars a title, grid lines, and no frame at the top and right."""
    style_axes(axes, title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=GRID, linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    return axes


def label_axis(axis: Axis, text: str) -> None:
    axis.set_label_text(text, fontsize=9, color=FOREGROUND, parse_math=False)


def set_percent_axis(axis: Axis, ticks: Sequence[float] = (0, 0.5, 1)) -> None:
    """Give an axis of fractions ticks in percent."""
    axis.set_ticks(list(ticks))
    axis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes: Any = axis.axes
    set_limits = axes.set_xlim if axis is axes.xaxis else axes.set_ylim
    set_limits(-0.03, 1.05)


def set_step_axis(axis: Axis) -> None:
    """Give an axis of steps whole numbers as ticks."""
    axis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def add_legend(axes: Axes, **options: Any) -> None:
    axes.legend(frameon=False, labelcolor=FOREGROUND, **{"fontsize": 8.5} | options)


# Heat maps


def draw_heatmap(
    axes: Axes,
    weights_QM: Any,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    cell: tuple[float, float],
) -> None:
    """Draw fractions from 0 to 1 as cells, and hatch the cells without a number.

    If not all labels fit, evenly spaced ones are drawn, always with the first. Labels that are None
    are omitted. `cell` is the width and the height of a cell in inches.
    """
    style_axes(axes)
    # hatches the background, which is visible in cells without a number
    axes.patch.set(facecolor="white", hatch="//////", edgecolor=HATCH, linewidth=0)
    axes.imshow(
        np.asarray(weights_QM, dtype=float),
        cmap=ATTENTION_CMAP,
        norm=UNIT_NORM,
        aspect="auto",
        interpolation="nearest",
    )
    for axis, labels, size in ((axes.xaxis, columns, cell[0]), (axes.yaxis, rows, cell[1])):
        if labels is None:
            axis.set_major_locator(NullLocator())
            continue
        every = math.ceil(MIN_LABEL_IN / size)
        axis.set_ticks(range(0, len(labels), every), [*map(label_of, labels[::every])])
        for text in axis.get_ticklabels():
            text.set(fontfamily=TOKEN_FONTS, fontsize=8, parse_math=False)
    axes.tick_params(length=0, pad=3)
    if columns is not None and max(map(len, columns)) > 3:
        axes.tick_params(axis="x", rotation=90)


def label_of(token: str) -> str:
    """Return the label of a token, with code points for characters that the fonts do not have."""
    fonts = [get_font(findfont(name)) for name in TOKEN_FONTS]
    return "".join(
        each if any(font.get_char_index(ord(each)) for font in fonts) else f"U+{ord(each):04X}"
        for each in format_token(token)
    )


def annotate_cell(axes: Axes, x: float, y: float, text: str, value: float) -> None:
    """Add text to a cell of a heat map, in white if the cell is dark."""
    color = "white" if value > 0.5 else FOREGROUND
    axes.text(x, y, text, parse_math=False, fontsize=7.5, color=color, ha="center", va="center")


def add_colorbar(axes: Axes, height: float) -> None:
    """Add the color scale of `draw_heatmap` next to a panel of this height in inches."""
    figure: Any = axes.figure
    length = min(max(MIN_COLORBAR_IN, height), MAX_COLORBAR_IN)

    def locate(cax: Any, renderer: Any) -> Bbox:
        """Return the box in fractions of the figure, with a fixed size in inches."""
        panel, (width_in, height_in) = axes.get_position(), figure.get_size_inches()
        left, top = panel.x1 + COLORBAR_GAP_IN / width_in, panel.y1
        return Bbox.from_extents(
            left, top - length / height_in, left + COLORBAR_WIDTH_IN / width_in, top
        )

    cax = axes.inset_axes((1, 0, 0.1, 1))
    cax.set_axes_locator(locate)
    bar = figure.colorbar(ScalarMappable(UNIT_NORM, ATTENTION_CMAP), cax=cax, ticks=(0, 0.5, 1))
    for label, alignment in zip(
        bar.ax.set_yticklabels(("0", "0.5", "1")), ("bottom", "center", "top"), strict=True
    ):
        label.set_verticalalignment(alignment)  # the labels stay within the height of the bar
    bar.outline.set(edgecolor=MUTED, linewidth=0.6)
    bar.ax.tick_params(length=2, width=0.6, color=MUTED, labelsize=8, labelcolor=FOREGROUND)
