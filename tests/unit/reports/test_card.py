"""The picture of a model that other sites show beside its link."""

import io

import numpy as np
import pytest
from PIL import Image

from playground.reports.card import render_card

CARD = {
    "name": "reverse 1–10",
    "result": "Learned reverse 1–10 in 70 steps, 9.0 s: 99.2 % of 2,000 unseen sequences right",
    "address": "example.org",
    "evaluations": [(10, 0.1, 0.4, 256, None), (70, 0.99, 1.0, 256, None)],
    "snapshot": {
        "attention": {"cross": [[[0, 1000, 0, 980, 20, 0]]]},
        "probe": {"target": ["2", "1"], "predicted": ["2", "2"], "probability": [900, 500]},
    },
    "probe_info": {"axes": {"cross": [["2", "1"], ["1", "2", "EOS"]]}},
}


def draw(**changes):
    """Return the left and the right half of the picture as pixels."""
    image = Image.open(io.BytesIO(render_card(CARD | changes)["png"]))
    assert image.size == (1200, 630)
    pixels = np.asarray(image.convert("RGB"))[150:]
    return pixels[:, :600], pixels[:, 600:]


def test_each_half_has_what_it_is_for():
    example, curve = draw()
    other_example, same_curve = draw(snapshot=None)
    assert (example != other_example).any()
    assert (curve == same_curve).all()
    same_example, other_curve = draw(evaluations=CARD["evaluations"][:1])
    assert (example == same_example).all()
    assert (curve != other_curve).any()


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluations": [], "result": ""},
        {"name": "$x^{<b>" * 40, "address": "h" * 300},
        {"snapshot": CARD["snapshot"] | {"probe": None}},
        {"snapshot": CARD["snapshot"] | {"attention": {}}},
        {"probe_info": {"axes": {"cross": [["🦊", "\u202e\x00"], ["$", "\\", "漢" * 60]]}}},
    ],
)
def test_any_model_has_a_picture_without_a_warning(changes, recwarn):
    example, _ = draw(**changes)
    assert example.shape == (480, 600, 3)
    assert not [str(each.message) for each in recwarn]
