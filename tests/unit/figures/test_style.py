"""Saving, colors and the size of panels."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.image import imread

from playground.figures.attention import attention_grid, cross_attention
from playground.figures.style import ATTENTION_CMAP, DIVERGING_CMAP, save
from playground.figures.training import exact_match_by_length, training_curve
from tests.support.app_server import ROOT
from tests.support.figures import LINES, SCORES, attention_data, weights


@pytest.mark.parametrize(("heads", "length", "cell"), [(1, 3, 0.36), (8, 20, 1.25 / 20)])
def test_the_cells_of_a_heat_map_have_a_fixed_size(heads, length, cell):
    tokens = [*"31415926535897932384"][:length]
    figure = attention_grid(attention_data("cross", 2, heads, tokens, tokens))
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * heads
    for axes in panels:
        size = axes.get_position().size * figure.get_size_inches()
        assert size == pytest.approx([cell * length] * 2, rel=0.03)


def test_a_figure_has_the_same_bytes_in_every_process(tmp_path):
    code = (
        "import json, sys, pathlib; from playground.figures.attention import cross_attention; "
        "from playground.figures.style import save; "
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


def test_saving_changes_no_setting_of_matplotlib(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    save(exact_match_by_length(SCORES), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_a_png_has_150_dots_an_inch(tmp_path):
    figure = training_curve(LINES)
    save(figure, tmp_path / "a.PNG")
    assert imread(tmp_path / "a.PNG", format="png").shape[:2] == tuple(
        round(150 * side) for side in figure.get_size_inches()[::-1]
    )


def test_another_file_type_raises_value_error(tmp_path):
    with pytest.raises(ValueError, match=r"a\.jpg is not a supported .* \.png, \.svg, \.pdf"):
        save(exact_match_by_length(SCORES), tmp_path / "a.jpg")


def test_neither_torch_nor_pyplot_is_loaded():
    code = (
        "import sys, playground.figures.catalog, playground.figures.experiments; "
        "sys.exit(bool({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_ramp_falls_from_white_in_steps_of_equal_lightness():
    rgb = ATTENTION_CMAP(np.linspace(0, 1, 33))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB L*
    assert lightness[0] == pytest.approx(100)
    assert np.diff(lightness) == pytest.approx(np.diff(lightness).mean(), rel=0.2)


def test_diverging_colors_are_equally_dark_at_equal_distance():
    rgb = DIVERGING_CMAP(np.linspace(0, 1, 9))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB L*
    assert lightness[4] == pytest.approx(100, abs=0.5)
    assert lightness == pytest.approx(lightness[::-1], abs=6)
    assert (np.diff(lightness[:5]) > 8).all()


def test_figures_can_be_drawn_in_several_threads(tmp_path):
    weights_LHQM = weights(1, 1, 2, 2)

    def draw(i):
        save(cross_attention(weights_LHQM, ["3", "EOS"], ["3", "EOS"]), tmp_path / f"{i}.svg")
        return (tmp_path / f"{i}.svg").read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(8)))) == 1
