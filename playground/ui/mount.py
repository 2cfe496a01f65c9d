"""Mount a view of the front end, an ES module in `static`, in a Gradio component."""

import hashlib
import posixpath
import re
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


# Relative to the page. It changes when a file changes, so browsers may cache files permanently.
STATIC_URL = f"playground/static/{content_version(STATIC_DIR)}/"
IMPORT_PATTERN = re.compile(r'^(?:import|\} from|import .* from|export .* from) "(\.[^"]+)";', re.M)
# Gradio evaluates this when the component is first rendered. The module builds the elements.
LOADER_JS = """
import(new URL("{url}", document.baseURI)).then(
  (module) => module.default({{ element, props, watch, trigger, server }}),
  (error) => {{
    console.error(error);
    element.textContent = "This part of the page could not be loaded. Reload the page.";
  }},
);
"""


def module_graph(*entries: str) -> list[str]:
    """Return entry modules and the modules that they load, by their paths in `static`."""
    modules = list(entries)
    for module in modules:
        text = (STATIC_DIR / module).read_text(encoding="utf-8")
        for path in IMPORT_PATTERN.findall(text):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(module), path))
            if imported not in modules:
                modules.append(imported)
    return modules


def preload_links(entries: tuple[str, ...], styles: tuple[str, ...]) -> str:
    """Return the `link` elements that load the imports of modules, and stylesheets, at once.

    Without them, a browser requests an import only after the module that imports it.
    """
    modules = [
        f'<link rel="modulepreload" href="{STATIC_URL}{module}">'
        for module in module_graph(*entries)
    ]
    return "\n".join(
        modules
        + [f'<link rel="preload" as="style" href="{STATIC_URL}{style}">' for style in styles]
    )


def build_view(name: str, module: str) -> gr.HTML:
    """Return a component with this id, which the default export of static/MODULE fills.

    The value is set when a page loads.
    """
    return gr.HTML(
        value=None,
        html_template="",
        js_on_load=LOADER_JS.format(url=STATIC_URL + module),
        elem_id=name,
        padding=False,
    )
