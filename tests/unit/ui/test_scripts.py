"""What no script of the page may do."""

import re

import pytest

from tests.support.app_server import ROOT

SCRIPTS = sorted((ROOT / "playground" / "ui" / "static").rglob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_script_parses_text_as_markup_or_code(path):
    """Names come from strangers: they enter the page as text."""
    found = re.findall(
        r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|srcdoc)\b",
        path.read_text(),
    )
    assert found == []
