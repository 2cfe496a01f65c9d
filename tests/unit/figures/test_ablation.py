import pytest

from playground.figures.ablation import ablation_ranking, contributions
from tests.support.figures import ablation_rows, contribution_rows


def test_the_ranking_is_drawn_from_its_rows():
    rows = ablation_rows(["a", "b"], losses=[3.0, 0.5])
    lost, exact = ablation_ranking(rows).axes[:2]
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in lost.lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(row["log_probability_drop"], "ab".index(row["name"])) for row in rows}
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in exact.lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(row["exact_match"], "ab".index(row["name"])) for row in rows}
    assert [label.get_text() for label in lost.get_yticklabels()] == ["a", "b"]


def test_gains_have_a_scale_as_drops_have():
    lost = ablation_ranking(ablation_rows(["a", "b"], losses=[3.0, -20.0])).axes[0]
    assert lost.get_xticks().tolist() == [-10, -1, -0.1, 0, 0.1, 1]
    assert [label.get_text() for label in lost.get_xticklabels()][:2] == ["−10", "−1"]


def test_contributions_end_with_their_sum():
    axes = contributions(contribution_rows(enumerate([-1.5, 4.0]))).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [-1.5, 4.0, 2.5]
    assert [text.get_text() for text in axes.texts] == ["−1.50", "+4.00", "+2.50"]


def test_the_smallest_of_many_contributions_are_one_bar():
    values = [10.0, *[0.01] * 70, -5.0]
    axes = contributions(contribution_rows(enumerate(values))).axes[0]
    bars = [bar.get_width() for bar in axes.patches]
    assert (bars[0], bars[-3]) == (10.0, -5.0)
    assert len(bars) == 60 + 2
    assert bars[-2] == pytest.approx(12 * 0.01)
    assert bars[-1] == pytest.approx(sum(values))
    assert "12 more components" in [label.get_text() for label in axes.get_yticklabels()]
