"""The page: one HTML document, which is the same for every user, and its static files.

Its modules in `static` build the views. The first script and the styles of the first paint are part
of the document.

One view can be embedded in a frame of another site, such as a course: `?embed=learning`. Other
sites may frame only the EMBED_VIEWS, because a frame with the whole page allows clickjacking. An
embedded view has no owner key. It can show and run a model, but not start, change or delete runs.
"""

import hashlib
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from playground import ASSETS_DIR, __version__
from playground.common.format import source_hash
from playground.runs.access import CHECKPOINT_PREFIX

from .form_schema import form_schema

UI_DIR = Path(__file__).parent
STATIC_DIR = UI_DIR / "static"
HUB = "https://huggingface.co"
PAPER_URL = "https://arxiv.org/abs/1706.03762"
TABS = ("train", "inspect", "compare", "learn", "hub")
EMBED_VIEWS = ("learning", "attention", "try", "samples", "inspect")
IMPORT_PATTERN = re.compile(r'^(?:import|\} from|import .* from|export .* from) "(\.[^"]+)";', re.M)
# The header and the Train tab are the first that the page shows.
FIRST_MODULES = ("shell/page.js", "train/main.js")
FIRST_STYLES = (
    "shared/theme.css",
    "shell/reset.css",
    "shell/page.css",
    "shell/embedding.css",
    "vendor/uplot.css",
    "shared/common.css",
    "shared/components.css",
    "shell/model_bar.css",
    "train/form.css",
    "train/live.css",
    "shared/diagram/diagram.css",
)
FIRST_CHECKPOINT = CHECKPOINT_PREFIX + "reverse"  # the model that a first visit opens
N_SHADES = 4
BLOCKS = {  # by stack, from the top of a layer: kind, title and name of each block
    "encoder": (
        ("feed-forward", "Feed-forward", "feed_forward"),
        ("encoder", "Self-attention", "self_attn"),
    ),
    "decoder": (
        ("feed-forward", "Feed-forward", "feed_forward"),
        ("cross", "Cross-attention", "cross_attn"),
        ("decoder", "Masked self-attention", "self_attn"),
    ),
}


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


def read_static(path: str) -> str:
    return (STATIC_DIR / path).read_text(encoding="utf-8")


FIRST_SCRIPT = "\n" + read_static("shell/first.js")
FIRST_STYLE = "\n" + "".join(map(read_static, FIRST_STYLES))


def module_graph(*entries: str) -> list[str]:
    """Return entry modules and all that they import, which would else load one after another."""
    modules = list(entries)
    for module in modules:
        for path in IMPORT_PATTERN.findall(read_static(module)):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(module), path))
            if imported not in modules:
                modules.append(imported)
    return modules


def draw_map(weights: list[int], n_columns: int) -> list[Markup]:
    """Return the paths of a head's squares by shade, the lightest first; `weights` are rows."""
    paths, largest = [""] * N_SHADES, max(weights)
    for i, weight in enumerate(weights):
        if shade := round(N_SHADES * weight / largest):
            paths[shade - 1] += f"M{i % n_columns} {i // n_columns}h1v1h-1"
    return [Markup(path) for path in paths]


def first_view() -> dict[str, Any]:
    """Return what the template first_view.html.j2 draws: the last step of the recording."""
    folder = ASSETS_DIR / "checkpoints" / FIRST_CHECKPOINT.removeprefix(CHECKPOINT_PREFIX)
    recording = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    frame = recording["frames"][-1]
    attention, shares = frame["attention"], frame["contributions"]
    source, target = [*recording["source"], "EOS"], frame["probe"]["target"]
    n_keys = {"encoder": len(source), "cross": len(source), "decoder": len(target)}
    stacks = {
        side: [
            [
                {
                    "kind": kind,
                    "title": title,
                    "share": shares[f"{side}_layers.{layer}.{name}"],
                    "heads": [
                        draw_map(weights, n_keys[kind])
                        for weights in (attention[kind][layer] if kind in attention else [])
                    ],
                }
                for kind, title, name in blocks
            ]
            for layer in reversed(range(len(attention[side])))
        ]
        for side, blocks in BLOCKS.items()
    }
    weights = [
        {"key": i % len(source), "query": i // len(source), "weight": weight / 1000}
        for i, weight in enumerate(attention["cross"][-1][0])
        if weight > 20
    ]
    return {"stacks": stacks, "source": source, "target": target, "weights": weights}


def build_page(project_links: dict[str, str], space: str) -> str:
    """Return the document with these links; `space` is the id of its Space, or empty."""
    links = {"Paper": PAPER_URL, **project_links}
    if space:
        source = f"{HUB}/spaces/{quote(space)}"
        links |= {"Docs": f"{source}/tree/main/docs", "Source": f"{source}/tree/main"}
    environment = Environment(
        loader=FileSystemLoader(UI_DIR),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        first_script=Markup(FIRST_SCRIPT),
        first_style=Markup(FIRST_STYLE),
        icon=(UI_DIR / "icon.svg").read_text(encoding="utf-8"),
        static_url=STATIC_URL,
        modules=module_graph(*FIRST_MODULES),
        form_schema=htmlsafe_json_dumps(form_schema(), separators=(",", ":"), allow_nan=False),
        first_model=FIRST_CHECKPOINT,
        tabs=TABS,
        links=links,
        **first_view(),
    )


def page_policy(is_frameable: bool) -> str:
    """Return the content security policy of the document; other sites may frame some views."""
    hub = f" {HUB}" if "SPACE_ID" in os.environ else ""
    policy = {
        "default-src": "'self'",
        "script-src": f"'self' {source_hash(FIRST_SCRIPT)}",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": f"'self' data: blob:{hub}",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
    }
    if not is_frameable:
        policy["frame-ancestors"] = f"'self' {HUB}"
    return "; ".join(f"{name} {value}" for name, value in policy.items())
