import pytest

from playground.experiments.length_generalization import scores as length_scores
from playground.figures.experiments import (
    FIGURES,
    accuracy_by_length,
    experiment,
    lengths_heatmap,
    write,
)
from tests.support.figures import experiment_results, length_results


def caption(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_experiment_figure_has_summary_dot_per_seed_and_censoring():
    data = experiment_results()
    figure = experiment(data)
    assert data["summary"].split(";")[0] in caption(figure).replace("\n", " ")
    curves, bars = figure.axes
    assert [line.get_xdata().tolist() for line in curves.lines] == [list(range(10, 201, 10))] * 2
    dots = [line for line in bars.lines if line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in dots] == [[100, 110, 120], [100, 110]]
    assert "1 of 3 not reached" in [text.get_text() for text in bars.texts]


def test_medians_are_drawn_in_their_range_and_a_single_run_in_its_interval():
    for runs, low in (
        (2, 0.6),
        (1, length_scores([{"length": 2, "right": 60, "n": 100}])[0]["low"]),
    ):
        figure = accuracy_by_length(length_results(runs))
        axes = figure.axes[0]
        # of length 1 none is held out
        assert axes.lines[0].get_xdata().tolist() == list(range(2, 13))
        band = axes.collections[0].get_paths()[0].vertices
        assert min(y for x, y in band if x == 2) == pytest.approx(low)
        assert "untrained positions: 5 to 12 of the source" in caption(figure).replace("\n", " ")


def test_lengths_without_sequences_are_blank():
    image = lengths_heatmap(length_results()).axes[0].images[0].get_array()
    assert image.shape == (2, 12)
    assert image.mask[0, 0] or image[0, 0] != image[0, 0]
    assert image[0, 1] == pytest.approx(0.6)


def test_results_without_runs_raise_value_error():
    empty = length_results()
    for row in empty["rows"]:
        row["n"] = 0
    for draw in (accuracy_by_length, lengths_heatmap):
        with pytest.raises(ValueError, match="nothing to draw"):
            draw(empty)
    with pytest.raises(ValueError, match="nothing to draw"):
        experiment({"fields": [], "variants": [], "summary": ""})


def test_every_figure_is_written_in_three_formats(tmp_path):
    for name in FIGURES:
        paths = write(
            tmp_path, name, experiment_results(20, 1) if name == "experiment" else length_results()
        )
        assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
        assert all(path.stat().st_size > 3000 for path in paths)
