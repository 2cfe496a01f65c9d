"""The code of docs/api.md, run as it stands."""

import re

import pytest

from playground.models.config import SettingError
from playground.training.config import RunConfig
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


@pytest.mark.parametrize("part", ["task", "training"])
def test_run_config_part_of_wrong_type_is_rejected_with_remedy(part):
    with pytest.raises(SettingError, match=rf"{part} is 'reverse'; .* use RunConfig.from_fields") as refused:
        RunConfig(**{part: "reverse"})
    assert refused.value.field == part
