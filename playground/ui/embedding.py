"""Embed one view of the page in a frame of another site, such as a course: `?embed=learning`.

Other sites may frame only the VIEWS, because a frame with the whole page allows clickjacking. An
embedded view has no owner key. It can show and run a model, but not start, change or delete runs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EMBED_VIEWS = ("learning", "attention", "try", "samples", "inspect")
EMBED_STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
# The script runs before the first paint, so that the rest of the page never appears.
EMBED_HEAD = f"""<script>
{{ const view = new URLSearchParams(location.search).get("embed");
  if ({json.dumps(EMBED_VIEWS)}.includes(view)) document.documentElement.dataset.embed = view; }}
</script>
<style>
{EMBED_STYLE}</style>"""


def is_embedded(query: Mapping[str, Any]) -> bool:
    """Return whether a page with this query is an embedded view."""
    return query.get("embed") in EMBED_VIEWS
