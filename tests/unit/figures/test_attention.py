import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from playground.figures.attention import (
    DIVERGING_CMAP,
    FIGURES,
    ablation_ranking,
    attention_grid,
    contributions,
    cross_attention_by_step,
    head_scores,
    head_scores_over_training,
    logit_lens,
    single_head,
    write,
)
from tests.support.app_server import ROOT

GENERATOR = np.random.default_rng(0)
TEN = [*"3141592653", "EOS"]
PATTERNS = ("diagonal", "anti-diagonal", "previous", "next", "first", "last", "uniform")


def weights(*shape):
    scores = np.exp(2 * GENERATOR.normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def grid(kind, layers, heads, rows, columns):
    causal = np.tri(len(rows), len(columns), dtype=bool)
    possible = causal if kind == "decoder" else np.ones_like(causal)
    return {
        "kind": kind,
        "title": f"{kind} attention",
        "rows": rows,
        "columns": columns,
        "weights": weights(layers, heads, len(rows), len(columns)).tolist(),
        "possible": possible.tolist(),
    }


def large(kind, rows, columns):
    data = grid(kind, 1, 1, rows, columns)
    return data | {"title": f"{kind}, layer 1, head 1", "weights": data["weights"][0][0]}


def by_step(layers, heads, source):
    names = [
        f"layer {layer + 1}, head {head + 1}" for layer in range(layers) for head in range(heads)
    ]
    answer = [*source[-2::-1], "EOS"]
    steps = [
        {
            "written": ["SOS", *answer[:t]],
            "next": symbol,
            "right": None if t == 2 else answer[0],
            "probability": 0.999,
            "candidates": [[symbol, 0.999]],
            "weights": weights(len(names), len(source)).tolist(),
        }
        for t, symbol in enumerate(answer)
    ]
    return {"columns": source, "heads": names, "steps": steps}


def effects(names, kept=False, losses=None):
    losses = losses or [30 / (i + 1) ** 3 for i in range(len(names))]
    return [
        {
            "name": name,
            "how": how,
            "keep_only": kept,
            "n": 512,
            "exact_match_before": 1.0,
            "exact_match": 1 / (1 + loss),
            "log_probability_before": -0.01,
            "log_probability": -loss,
            "log_probability_lost": loss * (1 if how == "zero" else 0.7),
        }
        for how in ("zero", "mean")
        for name, loss in zip(names, losses, strict=True)
    ]


def scores(layers, heads, step=None):
    kinds = {
        "encoder": "encoder self-attention",
        "decoder": "decoder self-attention",
        "cross": "cross-attention",
    }
    rows = []
    for kind, name in kinds.items():
        for layer, head in np.ndindex(layers, heads):
            shares = {
                p: None
                if kind == "decoder" and p in ("next", "last")
                else float(GENERATOR.random())
                for p in PATTERNS
            }
            rows.append(
                {
                    "name": f"{name}, layer {layer + 1}, head {head + 1}",
                    "kind": kind,
                    "best": "previous",
                    **shares,
                    "entropy": 1.234,
                    "max_entropy": 2.0,
                    "aligned": 0.7 if kind == "cross" else None,
                    "distance": 0.31 if kind == "cross" else None,
                }
            )
    return rows if step is None else [{"step": step, **row} for row in rows]


def lens(columns, layers):
    names = ["embedding", *(f"layer {i + 1}" for i in range(layers))]
    return {
        "layers": names,
        "has_target": True,
        "columns": columns,
        "symbols": [columns[::-1], *[columns] * layers],
        "probability": GENERATOR.random((layers + 1, len(columns))).tolist(),
        "right": [],
    }


def parts(values):
    return [
        {
            "name": f"cross-attention, layer 1, head {i + 1}",
            "position": 2,
            "token": "4",
            "against": "1",
            "logit": v,
        }
        for i, v in values
    ]


PARTS = [f"decoder self-attention, layer {i // 4 + 1}, head {i % 4 + 1}" for i in range(30)]
WAVES = [{"dimension": 0, "wavelength": 6.28}, {"dimension": 62, "wavelength": 47117.2}]
CASES = {
    "grid": lambda: attention_grid(grid("decoder", 2, 4, TEN, TEN)),
    "one head in a grid": lambda: attention_grid(grid("cross", 1, 1, ["3", "EOS"], ["3", "EOS"])),
    "one decoder head in a grid": lambda: attention_grid(
        grid("decoder", 1, 1, ["3", "EOS"], ["SOS", "3"])
    ),
    "eight heads": lambda: attention_grid(
        grid("encoder", 3, 8, [*"31415926535897932384", "EOS"], [*"31415926535897932384", "EOS"])
    ),
    "more layers and heads than fit": lambda: attention_grid(
        grid("decoder", 9, 17, ["3", "EOS"], ["SOS", "3"])
    ),
    "a large head": lambda: single_head(large("decoder", TEN, TEN)),
    "a tiny head": lambda: single_head(large("cross", ["EOS"], ["3", "EOS"])),
    "a tiny decoder head": lambda: single_head(large("decoder", ["3", "EOS"], ["SOS", "3"])),
    "a wide head": lambda: single_head(large("encoder", [*"3141592653" * 4], [*"3141592653" * 4])),
    "steps": lambda: cross_attention_by_step(by_step(2, 4, TEN)),
    "steps of one head": lambda: cross_attention_by_step(by_step(1, 1, ["3", "1", "EOS"])),
    "more steps than fit": lambda: cross_attention_by_step(
        by_step(1, 2, [*"31415926535897932384626433832", "EOS"])
    ),
    "one step": lambda: cross_attention_by_step(by_step(1, 1, ["EOS"])),
    "thirty parts": lambda: ablation_ranking(effects(PARTS)),
    "one part": lambda: ablation_ranking(effects(["source positions"], losses=[0.0])),
    "a part that is better away": lambda: ablation_ranking(
        effects(PARTS[:3], losses=[1.0, 0.0, -0.2])
    ),
    "parts that are much better away": lambda: ablation_ranking(
        effects(PARTS[:3], losses=[30.0, 0.0, -30.0])
    ),
    "alone": lambda: ablation_ranking(effects(PARTS[:5], kept=True)),
    "scores": lambda: head_scores(scores(2, 4)),
    "scores of one head": lambda: head_scores(scores(1, 1)),
    "more heads than fit": lambda: head_scores(scores(4, 9)),
    "over training": lambda: head_scores_over_training(
        [row for step in (0, 10, 200) for row in scores(2, 4, step)]
    ),
    "many over training": lambda: head_scores_over_training(
        [row for step in (1, 200_000) for row in scores(4, 8, step)]
    ),
    "lens": lambda: logit_lens(lens(TEN, 2)),
    "lens of more places than fit": lambda: logit_lens(lens([*"3141592653" * 5, "EOS"], 6)),
    "lens of one symbol": lambda: logit_lens(lens(["3", "EOS"], 1)),
    "lens of an answer that nobody knows": lambda: logit_lens(
        lens(["3", "EOS"], 1) | {"has_target": False}
    ),
    "contributions": lambda: contributions(parts(enumerate([-1.3, 0.001, 6.4, -0.001, 12.0]))),
    "more contributions than fit": lambda: contributions(
        parts(enumerate(GENERATOR.normal(size=100)))
    ),
    "no contribution": lambda: contributions(parts([(0, 0.0)])),
    "positions": lambda: FIGURES["positions"](
        {
            "kind": "learned",
            "source": GENERATOR.normal(size=(11, 64)),
            "target": GENERATOR.normal(size=(40, 64)),
        }
    ),
    "sine waves": lambda: FIGURES["sine-waves"](
        {"d_model": 64, "matrix": GENERATOR.random((100, 64)) * 2 - 1, "waves": WAVES}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_written_is_cut_off_or_lies_over_something_else(name):
    figure = CASES[name]()
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    ticks = [
        (axis, tick)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
    ]
    beyond = {
        label
        for axis, tick in ticks
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    shown = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in beyond
    ]
    assert shown
    boxes = [(text, text.get_window_extent(canvas.get_renderer())) for text in shown]
    for text, box in boxes:
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    upright = [(text, box) for text, box in boxes if text.get_rotation() in (0, 90)]
    begin, end = (
        np.array([getattr(box, corner) for _, box in upright]).reshape(-1, 1, 2)
        for corner in ("min", "max")
    )
    overlap = ((end > begin.swapaxes(0, 1) + 1) & (end.swapaxes(0, 1) > begin + 1)).all(-1)
    overlapping = [
        (upright[i][0].get_text(), upright[j][0].get_text())
        for i, j in np.argwhere(overlap)
        if i < j
    ]
    assert overlapping == [], name


def test_cells_that_nobody_could_look_at_are_left_out_of_the_heatmap():
    data = grid("decoder", 1, 2, TEN, TEN)
    figure = attention_grid(data)
    for head, axes in enumerate(axes for axes in figure.axes if axes.images):
        if head < 2:
            shown = axes.images[0].get_array()
            possible = np.array(data["possible"])
            assert np.isnan(np.asarray(shown.filled(np.nan))[~possible]).all()
            assert np.asarray(shown)[possible] == pytest.approx(
                np.array(data["weights"])[0, head][possible]
            )
            assert axes.patch.get_hatch()


def test_a_large_head_tells_its_numbers():
    figure = single_head(
        large("cross", ["3", "EOS"], ["3", "EOS"]) | {"weights": [[0.25, 0.75], [0.002, 0.998]]}
    )
    assert {".25", ".75", ".99"} <= {text.get_text() for text in figure.axes[0].texts}
    assert ".00" not in {text.get_text() for text in figure.axes[0].texts}


def test_a_step_that_goes_wrong_is_marked():
    figure = cross_attention_by_step(by_step(1, 1, ["3", "1", "EOS"]))
    said = [text.get_text() for text in figure.findobj(Annotation)]
    assert "→ 1  99.9 %" in said
    assert "→ 3  99.9 %, target: 1" in said
    assert "SOS 1 3" in said


def test_the_ranking_is_drawn_from_its_rows():
    rows = effects(["a", "b"], losses=[3.0, 0.5])
    lost, exact = ablation_ranking(rows).axes[:2]
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in lost.lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(row["log_probability_lost"], "ab".index(row["name"])) for row in rows}
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in exact.lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(row["exact_match"], "ab".index(row["name"])) for row in rows}
    assert [label.get_text() for label in lost.get_yticklabels()] == ["a", "b"]


def test_gains_have_a_scale_as_losses_have():
    lost = ablation_ranking(effects(["a", "b"], losses=[3.0, -20.0])).axes[0]
    assert lost.get_xticks().tolist() == [-10, -1, -0.1, 0, 0.1, 1]
    assert [label.get_text() for label in lost.get_xticklabels()][:2] == ["−10", "−1"]


def test_what_falls_short_of_all_is_not_written_as_all():
    steps = by_step(1, 1, ["3", "EOS"])
    steps["steps"][0]["probability"] = 0.99996
    rows = [row | {"exact_match_before": 0.9996} for row in effects(["a"], losses=[3.0])]
    table = [row | {"first": 0.996, "last": 1.0} for row in scores(1, 1)]
    said = {
        text.get_text()
        for figure in (cross_attention_by_step(steps), ablation_ranking(rows), head_scores(table))
        for text in figure.findobj(Text)
    }
    assert {"→ 3  99.9 %", "intact: 99.9 %", "99", "100"} <= said


def test_head_curve_is_the_score_of_its_final_best_pattern():
    rows = [row for step in (0, 100) for row in scores(1, 1, step)]
    rows[-1]["best"] = "anti-diagonal"  # cross-attention at the last step; before it was "previous"
    cross = head_scores_over_training(rows).axes[2]
    (line,) = cross.lines
    assert line.get_xydata().tolist() == [
        [0, rows[2]["anti-diagonal"]],
        [100, rows[5]["anti-diagonal"]],
    ]
    assert [text.get_text() for text in cross.get_legend().get_texts()] == [
        "layer 1, head 1: anti-diagonal"
    ]


def test_contributions_end_with_their_sum():
    axes = contributions(parts(enumerate([-1.5, 4.0]))).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [-1.5, 4.0, 2.5]
    assert [text.get_text() for text in axes.texts] == ["−1.50", "+4.00", "+2.50"]


def test_of_many_contributions_the_smallest_are_drawn_together():
    values = [10.0, *[0.01] * 70, -5.0]
    axes = contributions(parts(enumerate(values))).axes[0]
    bars = [bar.get_width() for bar in axes.patches]
    assert (bars[0], bars[-3]) == (10.0, -5.0)
    assert len(bars) == 60 + 2
    assert bars[-2] == pytest.approx(12 * 0.01)
    assert bars[-1] == pytest.approx(sum(values))
    assert "12 more components" in [label.get_text() for label in axes.get_yticklabels()]


def test_wrong_symbols_of_the_lens_are_framed():
    axes = logit_lens(lens(["4", "1", "EOS"], 1)).axes[0]
    assert len(axes.patches) == 2  # the embedding's row is reversed: its middle symbol is right


def test_symbols_that_nobody_knows_to_be_right_are_not_called_so():
    (caption,) = (
        text.get_text()
        for text in logit_lens(lens(["4", "EOS"], 1) | {"has_target": False}).texts
        if "columns:" in text.get_text()
    )
    assert caption.startswith("columns: generated tokens ")


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (
            lambda: attention_grid(grid("cross", 1, 1, TEN, TEN) | {"rows": TEN[1:]}),
            "do not fit 10 rows and 11 columns",
        ),
        (lambda: single_head(grid("cross", 1, 1, TEN, TEN)), "give 2 dimensions"),
        (
            lambda: cross_attention_by_step({"columns": TEN, "heads": ["a"], "steps": []}),
            "no step to draw",
        ),
        (lambda: ablation_ranking([]), "no effects"),
        (lambda: head_scores([]), "no heads"),
        (lambda: head_scores_over_training(scores(1, 1, step=3)), "there are 1 steps"),
        (lambda: contributions([]), "no contributions"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, says):
    with pytest.raises(ValueError, match=says):
        draw()


def test_a_figure_is_written_in_three_kinds_with_its_data_beside_it(tmp_path):
    rows = effects(["cross-attention, layer 1"], losses=[3.0])
    assert {path.name for path in write(tmp_path, "ablation", rows)} == {
        f"ablation.{kind}" for kind in ("png", "svg", "pdf", "csv")
    }
    with open(tmp_path / "ablation.csv", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [
            {key: str(value) for key, value in row.items()} for row in rows
        ]
    data = large("decoder", ["3", "EOS"], ["SOS", "3"])
    paths = write(tmp_path, "head", data)
    assert json.loads(paths[-1].read_text(encoding="utf-8")) == data
    assert all(path.stat().st_size > 100 for path in paths)


def test_the_signed_colours_are_equally_dark_at_equal_distance_from_zero():
    rgb = DIVERGING_CMAP(np.linspace(0, 1, 9))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB L*
    assert lightness[4] == pytest.approx(100, abs=0.5)
    assert lightness == pytest.approx(lightness[::-1], abs=6)
    assert (np.diff(lightness[:5]) > 8).all()


def test_neither_torch_nor_pyplot_is_loaded():
    code = (
        "import sys, playground.figures.attention; sys.exit(bool({'torch', "
        "'matplotlib.pyplot'} "
        "& set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
