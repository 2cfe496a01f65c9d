"""One view of the page in a frame of another site, as for a course: `?embed=learning` and the others of VIEWS.

A page of another site may frame these views and nothing else of the playground: whoever frames the whole page could lead a visitor's
clicks. An embedded view knows no owner, so it can look and ask, and neither start nor steer nor delete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VIEWS = ("learning", "attention", "try", "samples", "inspect")
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
