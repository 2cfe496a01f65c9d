"""Serve the documentation and the source code, to which the header of the page links.

Markdown and code are plain text. An installed package has its source code only.
"""

import html
from pathlib import Path
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from playground.ui.mount import UI_DIR

FILES_URL = "playground/files/"
PACKAGE = UI_DIR.parent
DOCUMENTS = ("README.md", "CHANGELOG.md", "LICENSE", "docs")
MEDIA_TYPES = dict.fromkeys(("", ".md", ".py", ".js", ".ts", ".css", ".html"), "text/plain") | {
    ".png": "image/png",
    ".gif": "image/gif",
}
LISTING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<h1>{title}</h1>
<ul>
{items}
</ul>
</html>
"""


class ProjectFiles:
    """The public files of the project: the package and, in a checkout, the documentation."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.package = package.resolve()
        self.root = self.package.parent
        is_checkout = (self.root / "docs").is_dir() and (self.root / "app.py").is_file()
        self.names = (package.name, *(DOCUMENTS if is_checkout else ()))

    def links(self) -> dict[str, str]:
        """Return the relative addresses of the documentation and of the source code."""
        links = {"Docs": f"{FILES_URL}docs"} if "docs" in self.names else {}
        return links | {"Source": FILES_URL + self.package.name}

    def find(self, path: str) -> Path:
        """Return the file or folder of a relative path.

        Raises:
            HTTPException: 404, for a path that does not exist or is not public.
        """
        resolved = (self.root / path).resolve()
        if resolved.is_relative_to(self.root):
            parts = resolved.relative_to(self.root).parts
            is_public = bool(parts) and parts[0] in self.names
            if is_public and (resolved.is_dir() or self.has_public_type(resolved)):
                return resolved
        raise HTTPException(404)

    @staticmethod
    def has_public_type(path: Path) -> bool:
        return path.is_file() and path.suffix in MEDIA_TYPES

    async def serve(self, request: Request) -> Response:
        path = self.find(request.path_params["path"].strip("/"))
        if path.is_dir():
            return HTMLResponse(self.listing(path))
        media_type = MEDIA_TYPES[path.suffix]
        return FileResponse(path, media_type=media_type, headers={"cache-control": "no-cache"})

    def listing(self, folder: Path) -> str:
        """Return a page with links to the files of a folder."""
        entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), entry.name))
        if folder == self.root / "docs":
            entries = [self.root / name for name in DOCUMENTS[:-1]] + entries
        visible = [
            entry
            for entry in entries
            if self.has_public_type(entry)
            or (entry.is_dir() and not entry.name.startswith(("_", ".")))
        ]
        # relative to the address of this page, which ends with the name of the folder
        items = "\n".join(
            f'<li><a href="{quote(entry.relative_to(folder.parent).as_posix())}">'
            f"{html.escape(entry.name)}{'/' * entry.is_dir()}</a></li>"
            for entry in visible
        )
        return LISTING.format(title=html.escape(folder.name), items=items)

    def route(self) -> Route:
        return Route(f"/{FILES_URL}{{path:path}}", self.serve, methods=["GET"])
