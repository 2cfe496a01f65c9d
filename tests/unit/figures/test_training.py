import json
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from matplotlib.text import Text

from playground.common.stats import wilson_interval
from playground.figures.training import (
    ATTENTION_CMAP,
    cross_attention,
    exact_match_by_length,
    save,
    training_curve,
)
from tests.support.app_server import ROOT

SHIPPED = ROOT / "checkpoints" / "reverse"
LINES = [json.loads(line) for line in (SHIPPED / "metrics.jsonl").read_text().splitlines()]
SCORES = json.loads((SHIPPED / "config.json").read_text())["scores"]
TEN = [*"3141592653", "EOS"]


def attention(layers=2, heads=4, rows=11, columns=11):
    scores = np.exp(2 * np.random.default_rng(0).normal(size=(layers, heads, rows, columns)))
    return scores / scores.sum(-1, keepdims=True)


def length(n, exact_match=0.5, of=1000):
    return {
        "length": n,
        "n": of,
        "available": None,
        "exact_match": exact_match,
        "token_accuracy": exact_match,
    }


FIGURES = {
    "training": lambda: training_curve(LINES),
    "one step": lambda: training_curve(LINES[:1]),
    "ten steps": lambda: training_curve(LINES[:10]),
    "a million steps": lambda: training_curve(
        [line | {"step": 5000 * line["step"]} for line in LINES]
    ),
    "no loss left": lambda: training_curve([{"step": 1, "loss": 0.0}, {"step": 2, "loss": 0.0}]),
    "grid": lambda: cross_attention(attention(), TEN, TEN),
    "one head": lambda: cross_attention(attention(1, 1), TEN, TEN),
    "two symbols": lambda: cross_attention(attention(1, 1, 2, 2), ["3", "EOS"], ["3", "EOS"]),
    "eight heads": lambda: cross_attention(
        attention(3, 8, 31, 21),
        [*"314159265358979323846264338327", "EOS"],
        [*"31415926535897932384", "EOS"],
    ),
    "words": lambda: cross_attention(
        attention(1, 2, 3, 3), ["abc", "defghij", "EOS"], ["$x$", "defghij", "EOS"]
    ),
    "lengths": lambda: exact_match_by_length(SCORES),
    "one length": lambda: exact_match_by_length({"by_length": [length(10)]}),
    "forty lengths": lambda: exact_match_by_length(
        {"by_length": [length(n, n / 40) for n in range(1, 41)]}
    ),
    "a length without": lambda: exact_match_by_length(
        {"by_length": [length(1, None, 0), length(2, 0.0, 3)]}
    ),
}


def texts(figure):
    """What is written on a figure, with the boxes that it takes in pixels."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    ticks = [
        (axis, tick)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
    ]
    beyond = {
        tick.label1
        for axis, tick in ticks
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    shown = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in beyond
    ]
    return [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_written_is_cut_off_or_lies_over_something_else(name):
    figure = FIGURES[name]()
    width, height = figure.get_size_inches() * figure.dpi
    found = texts(figure)
    assert found
    for text, box in found:
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    for place, (text, box) in enumerate(found):
        for other, beside in found[place + 1 :]:
            apart = (
                box.x1 <= beside.x0 + 1
                or beside.x1 <= box.x0 + 1
                or box.y1 <= beside.y0 + 1
                or beside.y1 <= box.y0 + 1
            )
            assert apart, f"{text!r} and {other!r} in {name}"


def test_a_figure_has_the_same_bytes_in_every_process(tmp_path):
    code = (
        "import json, sys, pathlib; from playground.figures.training import cross_attention, save;"
        "[save(cross_attention([[[[0.25, 0.75], [1, 0]]]], ['3', 'EOS'], ['3', 'EOS']), "
        "pathlib.Path(each)) for each in sys.argv[1:]]"
    )
    kinds = ("png", "svg", "pdf")
    for seed in "12":
        paths = [str(tmp_path / f"{seed}.{kind}") for kind in kinds]
        subprocess.run(
            [sys.executable, "-c", code, *paths],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "MPLCONFIGDIR": str(tmp_path)},
            check=True,
        )
    for kind in kinds:
        first, second = ((tmp_path / f"{seed}.{kind}").read_bytes() for seed in "12")
        assert first == second, kind
        assert len(first) > 2000
        assert not re.search(rb"20\d\d-\d\d-\d\d|D:20\d\d", first)


def test_saving_leaves_matplotlibs_settings_as_they_were(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    save(FIGURES["lengths"](), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_a_png_has_150_dots_an_inch(tmp_path):
    figure = FIGURES["training"]()
    save(figure, tmp_path / "a.PNG")
    assert imread(tmp_path / "a.PNG", format="png").shape[:2] == tuple(
        round(150 * side) for side in figure.get_size_inches()[::-1]
    )


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a\.jpg is not a supported .* \.png, \.svg, \.pdf"):
        save(FIGURES["lengths"](), tmp_path / "a.jpg")


def test_neither_torch_nor_pyplot_is_loaded():
    code = (
        "import sys, playground.figures.training; sys.exit(bool({'torch', 'matplotlib.pyplot'} "
        "& set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_ramp_falls_from_white_in_steps_of_equal_lightness():
    rgb = ATTENTION_CMAP(np.linspace(0, 1, 33))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB L*
    assert lightness[0] == pytest.approx(100)
    assert np.diff(lightness) == pytest.approx(np.diff(lightness).mean(), rel=0.2)


def test_the_curve_is_drawn_from_the_lines():
    loss, scores = training_curve(LINES).axes
    (curve,) = loss.lines
    assert curve.get_xydata().tolist() == [[line["step"], line["loss"]] for line in LINES]
    assert loss.get_yscale() == "log"
    looked = [line for line in LINES if "exact_match" in line]
    assert [drawn.get_ydata().tolist() for drawn in scores.lines] == [
        [line["exact_match"] for line in looked],
        [line["token_accuracy"] for line in looked],
    ]
    assert "256 held-out" in scores.get_title("left")


def test_a_run_that_was_not_looked_at_has_no_empty_panel():
    assert len(training_curve(LINES[:9]).axes) == 1
    with pytest.raises(ValueError, match="no metrics to draw"):
        training_curve([])


def test_a_heatmap_shows_its_weights_on_a_scale_from_0_to_1():
    weights = attention(2, 3, 4, 5) / 2
    figure = cross_attention(weights, [*"abcd"], [*"vwxyz"])
    images = [
        axes.images[0]
        for axes in figure.axes
        if axes.images and axes.images[0].get_array().ndim == 2
    ][:6]
    for image, expected in zip(images, weights.reshape(6, 4, 5), strict=True):
        assert np.array_equal(image.get_array(), expected)
        assert image.get_clim() == (0, 1)
    written = [text for text, _ in texts(figure)]
    assert {"head 3", "layer 2", "d", "z"} <= set(written)
    assert written.count("a") == 2
    assert any("rows:" in text and "columns:" in text for text in written)


def test_labels_that_do_not_fit_the_weights_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 4, 11, 11\) do not fit 11 rows and 10 columns"):
        cross_attention(attention(), TEN, TEN[:-1])


def test_lengths_show_their_number_and_interval():
    axes = exact_match_by_length(
        {"by_length": [length(3, None, 0), length(4, 0.8, 10), length(5, 1.0, 2000)]}
    ).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3\n0", "4\n10", "5\n2,000"]
    interval, point = axes.lines[:2]
    assert interval.get_ydata().tolist() == list(wilson_interval(8, 10))
    assert point.get_xydata().tolist() == [[4, 0.8]]
    assert len(axes.lines) == 4
    with pytest.raises(ValueError, match="no lengths"):
        exact_match_by_length({"by_length": []})


def test_figures_are_drawn_in_threads_at_once(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def draw(place):
        save(FIGURES["two symbols"](), tmp_path / f"{place}.svg")
        return (tmp_path / f"{place}.svg").read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(8)))) == 1
