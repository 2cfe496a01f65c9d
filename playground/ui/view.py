"""A view of our own: one HTML component made of the files beside this one."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

HERE = Path(__file__).parent


def view(
    name: str, styles: tuple[str, ...], scripts: tuple[str, ...], hidden: bool = False
) -> gr.HTML:
    """NAME.html with these style sheets, and these scripts as one program, in their order. Its value is set when a page loads.
    A hidden one is in the document all the same, and keeps what a visitor wrote there."""

    def joined(files: tuple[str, ...]) -> str:
        return "\n".join((HERE / file).read_text(encoding="utf-8") for file in files)

    return gr.HTML(
        value=None,
        html_template=joined((f"{name}.html",)),
        css_template=joined(styles),
        js_on_load=joined(scripts),
        elem_id=name,
        padding=False,
        visible="hidden" if hidden else True,
    )
