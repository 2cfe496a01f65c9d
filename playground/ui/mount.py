"""Build a view: one HTML component from the files beside this module."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

UI_DIR = Path(__file__).parent


def build_view(
    name: str, styles: tuple[str, ...], scripts: tuple[str, ...], hidden: bool = False
) -> gr.HTML:
    """Return a view of NAME.html with these style sheets and scripts.

    The scripts are concatenated in their order. The value is set when a page loads. A hidden view
    stays in the document, and keeps the values of its fields.
    """

    def join_files(files: tuple[str, ...]) -> str:
        return "\n".join((UI_DIR / file).read_text(encoding="utf-8") for file in files)

    return gr.HTML(
        value=None,
        html_template=join_files((f"{name}.html",)),
        css_template=join_files(styles),
        js_on_load=join_files(scripts),
        elem_id=name,
        padding=False,
        visible="hidden" if hidden else True,
    )
