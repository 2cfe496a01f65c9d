from playground.figures.heads import head_scores_over_training
from tests.support.figures import score_rows


def test_head_curve_is_the_score_of_its_final_best_pattern():
    rows = [row for step in (0, 100) for row in score_rows(1, 1, step)]
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
