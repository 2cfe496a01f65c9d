"""Files, colors and the size of panels."""

import csv
import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.image import imread

from playground.figures.figures import (
    attention_grid,
    cross_attention,
    exact_match_by_length,
    training_curve,
    write,
)
from playground.figures.style import ATTENTION_CMAP, render
from tests.support.app_server import ROOT
from tests.support.figures import LINES, SCORES, ablation_rows, attention_data, head_data, weights


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
        "import sys, pathlib; from playground.figures.figures import cross_attention; "
        "from playground.figures.style import render; "
        "figure = cross_attention([[[[0.25, 0.75], [1, 0]]]], ['3', 'EOS'], ['3', 'EOS']); "
        "[pathlib.Path(each).write_bytes(render(figure, each[-3:])) for each in sys.argv[1:]]"
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


def test_rendering_changes_no_setting_of_matplotlib():
    import matplotlib

    before = dict(matplotlib.rcParams)
    assert render(exact_match_by_length(SCORES), "svg").startswith(b"<?xml")
    assert dict(matplotlib.rcParams) == before


def test_a_png_has_150_dots_an_inch():
    figure = training_curve(LINES)
    assert imread(io.BytesIO(render(figure, "png")), format="png").shape[:2] == tuple(
        round(150 * side) for side in figure.get_size_inches()[::-1]
    )


def test_neither_torch_nor_pyplot_is_loaded():
    code = (
        "import sys, playground.figures.figures; "
        "sys.exit(bool({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_ramp_falls_from_white_in_steps_of_equal_lightness():
    rgb = ATTENTION_CMAP(np.linspace(0, 1, 33))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB L*
    assert lightness[0] == pytest.approx(100)
    assert np.diff(lightness) == pytest.approx(np.diff(lightness).mean(), rel=0.2)


def test_figures_can_be_drawn_in_several_threads():
    weights_LHQM = weights(1, 1, 2, 2)

    def draw(_):
        return render(cross_attention(weights_LHQM, ["3", "EOS"], ["3", "EOS"]), "svg")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(8)))) == 1
