"""Figures as SVG inside an HTML document."""

import base64
import re
from html import escape

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from playground.figures.style import ACCENT, FOREGROUND, GRID, MUTED, SECONDARY, render

MAX_SVG_BYTES = 200_000  # a larger figure is embedded as PNG
# The variables of report.css, so that a figure follows the theme of the reader.
THEME = {
    FOREGROUND: "var(--ink)",
    MUTED: "var(--quiet)",
    GRID: "var(--line)",
    ACCENT: "var(--accent)",
    SECONDARY: "var(--second)",
}


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """Return a figure as an element of HTML.

    `name` is a prefix of its ids, unique in the document. `description` is for screen readers.
    """
    figure.set_facecolor("none")
    for axes in figure.findobj(Axes):
        if not axes.images:  # a heat map is white in every theme
            axes.set_facecolor("none")
    svg = render(figure, "svg").decode()
    label = f'role="img" aria-label="{escape(description)}"'
    if len(svg) > MAX_SVG_BYTES:
        figure.set_facecolor("white")
        data = base64.b64encode(render(figure, "png")).decode()
        return Markup(f'<img src="data:image/png;base64,{data}" alt="{escape(description)}">')
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' height="[^"]*"', "", svg, count=1)
    for color, variable in THEME.items():
        svg = svg.replace(color, variable)
    return Markup(svg.replace("<svg", f"<svg {label}", 1))
