"""Every kind of figure, small and large: no text is clipped, and no texts overlap."""

import numpy as np
import pytest

from tests.support.figures import CASES, text_boxes


@pytest.mark.parametrize("name", CASES)
def test_no_text_is_clipped_or_overlaps_another(name):
    figure = CASES[name]()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = text_boxes(figure)
    assert boxes
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
    pairs = [
        (upright[i][0].get_text(), upright[j][0].get_text())
        for i, j in np.argwhere(overlap)
        if i < j
    ]
    assert pairs == []
