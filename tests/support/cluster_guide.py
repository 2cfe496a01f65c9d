"""The files and the commands of docs/cluster.md, which tests run word for word."""

import re

from tests.support.app_server import ROOT
from tests.support.shards import FIVE_STEPS

SMALL = "\n".join(f"{name} = {value}" for name, value in FIVE_STEPS.items())


def read_section(heading):
    """Return the files and the commands of a section of the document."""
    section = (ROOT / "docs" / "cluster.md").read_text().split(f"\n## {heading}\n")[1]
    blocks = re.findall(r"```(toml)?\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    return [text for kind, text in blocks if kind], [text for kind, text in blocks if not kind]


def make_small(spec):
    """Return a file of the document with few runs, each of which takes a moment."""
    spec = re.sub(r"^seeds = \[0, .*", "seeds = [0, 1]", spec, flags=re.MULTILINE)
    spec = re.sub(rf"^({'|'.join(FIVE_STEPS)}) = .*\n", "", spec, flags=re.MULTILINE)
    return spec.replace("[base]\n", f"[base]\n{SMALL}\n")
