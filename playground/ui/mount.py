"""Mount a view of the front end, an ES module in `static`, in a Gradio component."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gradio as gr

from playground import __version__

UI_DIR = Path(__file__).parent
STATIC_DIR = UI_DIR / "static"


def content_version(folder: Path) -> str:
    """Return the version of the package with a hash of the files in `folder`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{__version__}-{digest.hexdigest()[:12]}"


# Relative to the page. It changes with every file, so browsers may cache the files for good.
STATIC_URL = f"playground/static/{content_version(STATIC_DIR)}/"
# Gradio evaluates this when the component is first visible. The module builds the elements.
LOADER_JS = """
import(new URL("{url}", document.baseURI)).then(
  (module) => module.default({{ element, props, watch, trigger, server }}),
  (error) => {{
    console.error(error);
    element.textContent = "This part of the page could not be loaded. Reload the page.";
  }},
);
"""


def build_view(name: str, module: str, hidden: bool = False) -> gr.HTML:
    """Return a component with this id, which the default export of static/MODULE fills.

    The value is set when a page loads. A hidden view stays in the document, and keeps the values of
    its fields.
    """
    return gr.HTML(
        value=None,
        html_template="",
        js_on_load=LOADER_JS.format(url=STATIC_URL + module),
        elem_id=name,
        padding=False,
        visible="hidden" if hidden else True,
    )
