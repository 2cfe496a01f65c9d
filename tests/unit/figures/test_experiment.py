import pytest

from playground.figures.experiment import MAX_LINES, experiment_figure

CURVE = {"median": [0.1, 0.9], "low": [0.0, 0.8], "high": [0.2, 1.0]}


def report(n, **more):
    variants = [{"label": f"n_heads {i}", "curve": CURVE | {"steps": [10, 20]}} for i in range(n)]
    results = {"variants": variants, "drawn": [each["label"] for each in variants]}
    return {"question": "", "name": "heads", "results": results} | more


def lines(figure):
    return {line.get_label(): list(line.get_xdata()) for line in figure.axes[0].lines}


def test_each_variant_has_a_line_by_step():
    assert lines(experiment_figure(report(2))) == {"n_heads 0": [10, 20], "n_heads 1": [10, 20]}


def test_an_experiment_over_lengths_has_a_line_by_length():
    rows = [{"label": "rope", "lengths": [3, 4]} | CURVE]
    drawn = experiment_figure(report(2, lengths={"rows": rows, "trained": [1, 3]}))
    assert lines(drawn) == {"rope": [3, 4]}
    assert "trained up to 3" in drawn.axes[0].get_xlabel()


def test_a_figure_has_the_best_of_many_variants():
    assert len(lines(experiment_figure(report(MAX_LINES + 5)))) == MAX_LINES


def test_an_experiment_without_results_has_no_figure():
    with pytest.raises(ValueError, match="no run has a result yet"):
        experiment_figure(report(0))
