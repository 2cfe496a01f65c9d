"""All figures of inspection: their files, and errors of their data."""

import csv
import json

import pytest
from matplotlib.text import Text

from playground.figures.ablation import ablation_ranking, contributions
from playground.figures.attention import attention_grid, cross_attention_by_step, single_head
from playground.figures.catalog import write
from playground.figures.heads import head_scores, head_scores_over_training
from tests.support.figures import (
    TEN,
    ablation_rows,
    attention_data,
    head_data,
    score_rows,
    step_data,
)


def test_only_a_complete_fraction_is_written_as_complete():
    steps = step_data(1, 1, ["3", "EOS"])
    steps["steps"][0]["probability"] = 0.99996
    rows = [row | {"exact_match_before": 0.9996} for row in ablation_rows(["a"], losses=[3.0])]
    table = [row | {"first": 0.996, "last": 1.0} for row in score_rows(1, 1)]
    texts = {
        text.get_text()
        for figure in (cross_attention_by_step(steps), ablation_ranking(rows), head_scores(table))
        for text in figure.findobj(Text)
    }
    assert {"→ 3  99.9 %", "intact: 99.9 %", "99", "100"} <= texts


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: attention_grid(attention_data("cross", 1, 1, TEN, TEN) | {"rows": TEN[1:]}),
            "do not fit 10 rows and 11 columns",
        ),
        (lambda: single_head(attention_data("cross", 1, 1, TEN, TEN)), "give 2 dimensions"),
        (
            lambda: cross_attention_by_step({"columns": TEN, "heads": ["a"], "steps": []}),
            "no step to draw",
        ),
        (lambda: ablation_ranking([]), "no effects"),
        (lambda: head_scores([]), "no heads"),
        (lambda: head_scores_over_training(score_rows(1, 1, step=3)), "there are 1 steps"),
        (lambda: contributions([]), "no contributions"),
    ],
)
def test_invalid_data_raises_value_error(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_a_figure_has_three_formats_and_its_data(tmp_path):
    rows = ablation_rows(["cross-attention, layer 1"], losses=[3.0])
    assert {path.name for path in write(tmp_path, "ablation", rows)} == {
        f"ablation.{kind}" for kind in ("png", "svg", "pdf", "csv")
    }
    with open(tmp_path / "ablation.csv", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [
            {key: str(value) for key, value in row.items()} for row in rows
        ]
    data = head_data("decoder", ["3", "EOS"], ["SOS", "3"])
    paths = write(tmp_path, "head", data)
    assert json.loads(paths[-1].read_text(encoding="utf-8")) == data
    assert all(path.stat().st_size > 100 for path in paths)
