"""One view of the page in a frame of another site, as for a course: `?embed=learning` and the others of VIEWS.

A page of another site may frame these views and nothing else of the playground: whoever frames the whole page could lead a visitor's
clicks. An embedded view knows no owner, so it can look and ask, and neither start nor steer nor delete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

VIEWS = ("learning", "attention", "try", "samples", "inspect")
# A Space is shown in a frame of the Hub.
MAY_FRAME = "frame-ancestors 'self' https://huggingface.co"
STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
# Before anything is drawn, so that nothing of the whole page flashes up.
HEAD = f"""<script>
{{ const asked = new URLSearchParams(location.search).get("embed");
  if ({json.dumps(VIEWS)}.includes(asked)) document.documentElement.dataset.embed = asked; }}
</script>
<style>
{STYLE}</style>"""


def is_embedded(query: Mapping[str, Any]) -> bool:
    """Whether a page with this query is one embedded view."""
    return query.get("embed") in VIEWS


class Framing:
    """Says of every page who may frame it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("embed", [])
        embedded = len(asked) == 1 and is_embedded({"embed": asked[0]})  # of several, one would be read here and another by the page

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html") and not embedded:
                    headers.append("content-security-policy", MAY_FRAME)
            await send(message)

        await self.app(scope, receive, marked)
