"""The code of docs/api.md runs unchanged."""

import re

from tests.support.app_server import ROOT


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "api.md").read_text()
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("exact match ")
    assert lines[1] == "['4', '1', '3'] True"
    assert lines[2] == "2 torch.Size([4, 4, 7, 7])"
