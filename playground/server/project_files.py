"""Serve the documentation and the source code, to which the header of the page links.

Markdown becomes HTML, and code is plain text. The notebook is shown as it was executed. An
installed package has its source code and the notebook only.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from playground.ui.page import UI_DIR, read_static

FILES_URL = "playground/files/"
PACKAGE = UI_DIR.parent
DOCUMENTS = (
    *("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("CITATION.cff", "LICENSE", "benchmarks/RESULTS.md", "docs"),
)
NOTEBOOK = "docs/notebooks/sources.ipynb"
TEXT_SUFFIXES = ("", ".md", ".ipynb", ".py", ".js", ".ts", ".css", ".html", ".j2", ".cff")
MEDIA_TYPES = dict.fromkeys(TEXT_SUFFIXES, "text/plain") | {
    ".png": "image/png",
    ".gif": "image/gif",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}
# With an opaque origin, the server would take the links of a document for those of another site.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; "
    "sandbox allow-same-origin allow-popups allow-popups-to-escape-sandbox"
)
STYLE = read_static("shared/theme.css") + read_static("shared/document.css")
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    autoescape=True,
    trim_blocks=True,
)
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="table"><table>\n')
MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")
CELL = "python cell"  # marks the code of a notebook, which the page folds
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
DOCUMENT_LIST = re.compile(r"^## Documents\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
INDEX_START = (
    "# Documentation\n\n- [Overview](README.md): what the playground does, and first steps\n"
)
LOCAL_PAGE = "http://127.0.0.1:7860/"  # in documents, any instance


def render_code(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Render a block of code; that of a notebook is folded."""
    code = self.fence(tokens, index, options, env)
    if tokens[index].info != CELL:
        return code
    return f"<details><summary>Code</summary>{code}</details>\n"


MARKDOWN.add_render_rule("fence", render_code)


class ProjectFiles:
    """The public files of the project: the package and, in a checkout, the documentation."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.package = package.resolve()
        self.root = self.package.parent
        # a Space has the images of the documents only
        is_checkout = (self.root / "docs/api.md").is_file() and (self.root / "app.py").is_file()
        self.names = (package.name, *(DOCUMENTS if is_checkout else ()))
        self._pages: dict[Path, tuple[int, str]] = {}  # HTML and the time of its Markdown

    def links(self) -> dict[str, str]:
        """Return the addresses of documents, API page and source code, relative to the page."""
        documents = {"Docs": f"{FILES_URL}docs"} if "docs" in self.names else {}
        return documents | {"API": "api", "Source": FILES_URL + self.package.name}

    def notebook(self) -> str:
        """Return the address of the executed notebook, relative to the page."""
        path = NOTEBOOK if "docs" in self.names else f"{self.package.name}/bundled/{NOTEBOOK}"
        return FILES_URL + path

    def find(self, path: str | Path) -> Path:
        """Return the file or folder of a relative path; raise HTTPException(404) for any other."""
        resolved = (self.root / path).resolve()
        is_public = any(resolved.is_relative_to(self.root / name) for name in self.names)
        if is_public and (resolved.is_dir() or self.has_public_type(resolved)):
            return resolved
        raise HTTPException(404)

    @staticmethod
    def has_public_type(path: Path) -> bool:
        return path.is_file() and path.suffix in MEDIA_TYPES

    def serve(self, request: Request) -> Response:
        address = request.path_params["path"]
        path = self.find(address.strip("/"))
        if address.endswith("/"):  # the links of a folder are relative to its parent
            return RedirectResponse(f"../{path.name}")
        headers = {"cache-control": "no-cache"}
        if path.is_file() and path.suffix not in (".md", ".ipynb"):
            return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=headers)
        headers["content-security-policy"] = CONTENT_SECURITY_POLICY
        if path == self.root / "docs":
            page = self.document(self.root / "README.md", is_index=True)
        else:
            page = self.listing(path) if path.is_dir() else self.document(path)
        return HTMLResponse(page, headers=headers)

    def listing(self, folder: Path) -> str:
        """Return a page with links to the files of a folder."""
        entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), entry.name))
        visible = [
            (entry.name + "/" * entry.is_dir(), entry)
            for entry in entries
            if self.has_public_type(entry)
            or (entry.is_dir() and not entry.name.startswith(("_", ".")))
        ]
        if folder.parent != self.root:
            visible.insert(0, ("../", folder.parent))
        return self.render(
            folder,
            title=folder.relative_to(self.root).as_posix(),
            entries=[
                (name, quote(FILES_URL + entry.relative_to(self.root).as_posix()))
                for name, entry in visible
            ],
        )

    def document(self, path: Path, is_index: bool = False) -> str:
        """Return the page of a document; the index is the list of documents in README.md."""
        key = path / "index" if is_index else path
        modified, page = self._pages.get(key, (0, ""))
        if modified != path.stat().st_mtime_ns:
            modified, text = path.stat().st_mtime_ns, path.read_text(encoding="utf-8")
            if is_index:
                text = INDEX_START + "".join(DOCUMENT_LIST.findall(text)).lstrip()
            elif path.suffix == ".ipynb":
                text = notebook_to_markdown(text)
            page = self.render_markdown(path, text)
            self._pages[key] = (modified, page)
        return page

    def render_markdown(self, path: Path, text: str) -> str:
        tokens = MARKDOWN.parse(FRONT_MATTER.sub("", text))
        titles = set_anchors(tokens)
        for token in tokens:
            for child in token.children or ():
                if child.type == "link_open":
                    self.set_link(child, path)
        content = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
        return self.render(path, title=[*titles, path.name][0], content=Markup(content))

    def set_link(self, link: Token, path: Path) -> None:
        """Adapt a link of a document to this server; remove its target if that is not public."""
        target = str(link.attrs["href"])
        if target.startswith(LOCAL_PAGE):
            link.attrSet("href", self.home(path) + target.removeprefix(LOCAL_PAGE))
        elif (parts := urlsplit(target)).path and not parts.scheme:
            try:
                self.find(path.parent / unquote(parts.path))
            except HTTPException:
                link.attrs.clear()

    def home(self, path: Path) -> str:
        """Return the address of the page, relative to that of a file or folder."""
        return "../" * (len(path.relative_to(self.root).parts) - 1 + FILES_URL.count("/"))

    def render(self, path: Path, **content: Any) -> str:
        template = TEMPLATES.get_template("document.html.j2")
        common = {"home": self.home(path), "links": self.links(), "style": Markup(STYLE)}
        return template.render(common, **content)

    def route(self) -> Route:
        return Route(f"/{FILES_URL}{{path:path}}", self.serve, methods=["GET"])


def set_anchors(tokens: list[Token]) -> list[str]:
    """Give every heading the anchor that GitHub gives it, and return the headings."""
    headings, counts = [], Counter[str]()
    for heading, text in pairwise(tokens):
        if heading.type == "heading_open":
            anchor = heading_anchor(text.content)
            number = counts[anchor]
            heading.attrSet("id", f"{anchor}-{number}" if number else anchor)
            counts[anchor] += 1
            headings.append(text.content)
    return headings


def heading_anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def notebook_to_markdown(text: str) -> str:
    """Return the cells of a notebook as Markdown, with the tables and figures of their outputs."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```{CELL}\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output["data"]
            if image := data.get("image/png"):
                alt = output["metadata"]["image/png"]["alt"]
                parts.append(f"![{alt}](data:image/png;base64,{image.strip()})")
            else:
                parts.append("".join(data["text/markdown"]))
    return "\n\n".join(parts)
