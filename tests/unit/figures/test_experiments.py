import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from playground.experiments.analysis import summarize, summarize_variant
from playground.experiments.length_generalization import scores, summarize_scheme
from playground.experiments.variant import Variant
from playground.figures.experiments import (
    FIGURES,
    accuracy_by_length,
    experiment,
    lengths_heatmap,
    write,
)
from playground.training.config import RunConfig


def results(cells=2, seeds=3):
    told = []
    for at in range(cells):
        runs = [
            {
                "seed": seed,
                "done": True,
                "exact_match": 1.0,
                "steps": 200,
                "steps_to": None if (at, seed) == (1, 2) else 100 + 10 * seed,
                "seconds": 1.0,
                "curve": [[step, min(1.0, step / 150)] for step in range(10, 201, 10)],
                "loss": [[step, 100 / step] for step in range(10, 201, 10)],
            }
            for seed in range(seeds)
        ]
        told.append(
            summarize_variant(Variant({"n_heads": at + 1, "norm_placement": "pre"}, {}), runs)
            | {"seeds": runs}
        )
    return {
        "fields": ["n_heads", "norm_placement"],
        "cells": told,
        "summary": summarize(["n_heads", "norm_placement"], told),
    }


def by_length(runs=2):
    config = RunConfig.from_flat({"max_length": 4, "max_positions": 13})
    counts = [
        {"length": length, "right": max(0, 100 - 20 * length), "n": 100 if length > 1 else 0}
        for length in range(1, 13)
    ]
    rows = [
        summarize_scheme(
            name, [{"seed": seed, "scores": scores(counts)} for seed in range(runs)], config
        )
        for name in ("learned", "alibi")
    ]
    return {
        "trained": [1, 4],
        "max_length": 12,
        "n_requested": 100,
        "rows": rows,
        "summary": "Trained on little.",
    }


def words(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_experiment_figure_has_summary_dot_per_seed_and_censoring():
    found = results()
    figure = experiment(found)
    assert found["summary"].split(";")[0] in words(figure).replace("\n", " ")
    curves, bars = figure.axes
    assert [line.get_xdata().tolist() for line in curves.lines] == [list(range(10, 201, 10))] * 2
    dots = [line for line in bars.lines if line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in dots] == [[100, 110, 120], [100, 110]]
    assert "1 of 3 not reached" in [text.get_text() for text in bars.texts]


def test_medians_are_drawn_in_their_range_and_a_single_run_in_its_interval():
    for runs, low in ((2, 0.6), (1, scores([{"length": 2, "right": 60, "n": 100}])[0]["low"])):
        figure = accuracy_by_length(by_length(runs))
        axes = figure.axes[0]
        # of length 1 none is held out
        assert axes.lines[0].get_xdata().tolist() == list(range(2, 13))
        band = axes.collections[0].get_paths()[0].vertices
        assert min(y for x, y in band if x == 2) == pytest.approx(low)
        assert "untrained positions: 5 to 12 of the source" in words(figure).replace("\n", " ")


@pytest.mark.parametrize(
    "names",
    [
        ["learned", "alibi"],
        [f"position_type learned-from-end, norm {norm}" for norm in ("pre", "post", "pre")],
        ["a" * 130, "b", "c"],
    ],
)
def test_the_legend_is_within_the_figure_and_above_the_curves(names):
    found = by_length()
    found["rows"] = [found["rows"][0] | {"label": name} for name in names]
    figure = accuracy_by_length(found)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.axes[0].get_legend().get_window_extent(canvas.get_renderer())
    width, height = figure.get_size_inches() * figure.dpi
    (title,) = (
        text.get_window_extent(canvas.get_renderer())
        for text in figure.texts
        if text.get_text() == "Exact match by length"
    )
    assert 0 <= box.x0 < box.x1 <= width
    assert box.y1 <= title.y0 < height


def test_the_heatmap_leaves_blank_what_was_not_asked():
    image = lengths_heatmap(by_length()).axes[0].images[0].get_array()
    assert image.shape == (2, 12)
    assert image.mask[0, 0] or image[0, 0] != image[0, 0]
    assert image[0, 1] == pytest.approx(0.6)


def test_nothing_finished_is_said_rather_than_drawn():
    empty = by_length()
    for row in empty["rows"]:
        row["n"] = 0
    for draw in (accuracy_by_length, lengths_heatmap):
        with pytest.raises(ValueError, match="nothing to draw"):
            draw(empty)
    with pytest.raises(ValueError, match="nothing to draw"):
        experiment({"fields": [], "cells": [], "summary": ""})


def test_every_figure_is_written_in_three_formats(tmp_path):
    for name in FIGURES:
        paths = write(tmp_path, name, results(20, 1) if name == "experiment" else by_length())
        assert [path.suffix for path in paths] == [".png", ".svg", ".pdf"]
        assert all(path.stat().st_size > 3000 for path in paths)
