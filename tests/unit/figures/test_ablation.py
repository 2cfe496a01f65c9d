from matplotlib.text import Text

from playground.figures.figures import ablation_ranking
from tests.support.figures import ablation_rows


def test_the_ranking_is_drawn_from_its_rows():
    rows = ablation_rows(["a", "b"], losses=[3.0, 0.5])
    lost, exact = ablation_ranking(rows).axes[:2]
    for axes, key in ((lost, "log_probability_drop"), (exact, "exact_match")):
        points = {
            tuple(p)
            for line in axes.lines
            for p in line.get_xydata()
            if len(line.get_xydata()) == 1
        }
        assert points == {(row[key], "ab".index(row["name"])) for row in rows}
    assert [label.get_text() for label in lost.get_yticklabels()] == ["a", "b"]


def test_gains_have_a_scale_as_drops_have():
    lost = ablation_ranking(ablation_rows(["a", "b"], losses=[3.0, -20.0])).axes[0]
    assert lost.get_xticks().tolist() == [-10, -1, -0.1, 0, 0.1, 1]
    assert [label.get_text() for label in lost.get_xticklabels()][:2] == ["−10", "−1"]


def test_only_a_complete_fraction_is_written_as_complete():
    rows = [row | {"exact_match_before": 0.9996} for row in ablation_rows(["a"], losses=[3.0])]
    assert "intact: 99.9 %" in {text.get_text() for text in ablation_ranking(rows).findobj(Text)}
