import numpy as np
import pytest

from playground.figures.figures import attention_grid, cross_attention, single_head
from playground.figures.style import render
from tests.support.figures import TEN, attention_data, head_data, text_boxes, weights


def test_masked_cells_are_hatched():
    data = attention_data("decoder", 1, 2, TEN, TEN)
    figure = attention_grid(data)
    for head, axes in enumerate(axes for axes in figure.axes if axes.images):
        if head < 2:
            drawn = axes.images[0].get_array()
            possible = np.array(data["possible"])
            assert np.isnan(np.asarray(drawn.filled(np.nan))[~possible]).all()
            assert np.asarray(drawn)[possible] == pytest.approx(
                np.array(data["weights"])[0, head][possible]
            )
            assert axes.patch.get_hatch()


def test_a_large_head_has_its_numbers():
    figure = single_head(
        head_data("cross", ["3", "EOS"], ["3", "EOS"]) | {"weights": [[0.25, 0.75], [0.002, 0.998]]}
    )
    assert {".25", ".75", ".99"} <= {text.get_text() for text in figure.axes[0].texts}
    assert ".00" not in {text.get_text() for text in figure.axes[0].texts}


def test_a_heat_map_has_its_weights_on_a_scale_from_0_to_1():
    half = weights(2, 3, 4, 5) / 2
    figure = cross_attention(half, [*"abcd"], [*"vwxyz"])
    images = [
        axes.images[0]
        for axes in figure.axes
        if axes.images and axes.images[0].get_array().ndim == 2
    ][:6]
    for image, expected in zip(images, half.reshape(6, 4, 5), strict=True):
        assert np.array_equal(image.get_array(), expected)
        assert image.get_clim() == (0, 1)
    labels = [text.get_text() for text, _ in text_boxes(figure)]
    assert {"head 3", "layer 2", "d", "z"} <= set(labels)
    assert labels.count("a") == 2
    assert any("rows:" in text and "columns:" in text for text in labels)


def test_every_token_has_a_visible_label():
    tokens = ["5", "\u05d0", "\u200b", "\u4f60\u5f20", "\U0001f44b", "$x$"]
    figure = cross_attention(weights(1, 1, 6, 6), tokens, tokens)
    labels = [text.get_text() for text, _ in text_boxes(figure)]
    for label in ("5", "\u05d0", "U+200B", "U+4F60U+5F20", "U+1F44B", "$x$"):
        assert labels.count(label) == 2
    render(figure, "png")  # a missing glyph would be a warning, and a warning is an error
