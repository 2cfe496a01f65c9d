"""A view of our own: one HTML component made of the files beside this one."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

UI_DIR = Path(__file__).parent


def build_view(
    name: str, styles: tuple[str, ...], scripts: tuple[str, ...], hidden: bool = False
) -> gr.HTML:
    """NAME.html with these style sheets, and these scripts as one program, in their order. Its
    value is set when a page loads.
    A hidden one is in the document all the same, and keeps what a visitor wrote there."""

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
