from playground.common.stats import wilson_interval
from playground.figures.figures import exact_match_by_length, training_curve
from tests.support.figures import LINES, length_score


def test_the_curve_is_drawn_from_the_lines():
    loss, scores = training_curve(LINES).axes
    (curve,) = loss.lines
    assert curve.get_xydata().tolist() == [[line["step"], line["loss"]] for line in LINES]
    assert loss.get_yscale() == "log"
    evaluated = [line for line in LINES if "exact_match" in line]
    assert [drawn.get_ydata().tolist() for drawn in scores.lines] == [
        [line["exact_match"] for line in evaluated],
        [line["token_accuracy"] for line in evaluated],
    ]
    assert "256 held-out" in scores.get_title("left")


def test_held_out_loss_is_a_dashed_line_beside_the_training_loss():
    lines = [line | ({"held_out_loss": 2.0} if "exact_match" in line else {}) for line in LINES]
    training, held_out = training_curve(lines).axes[0].lines
    assert (training.get_linestyle(), held_out.get_linestyle()) == ("-", "--")
    assert training.get_color() == held_out.get_color()
    assert held_out.get_xydata().tolist() == [
        [line["step"], 2.0] for line in LINES if "exact_match" in line
    ]


def test_a_run_that_was_not_evaluated_at_has_no_empty_panel():
    assert len(training_curve(LINES[:9]).axes) == 1


def test_lengths_show_their_number_and_interval():
    scores = [length_score(3, None, 0), length_score(4, 0.8, 10), length_score(5, 1.0, 2000)]
    axes = exact_match_by_length({"by_length": scores}).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3\n0", "4\n10", "5\n2,000"]
    interval, point = axes.lines[:2]
    assert interval.get_ydata().tolist() == list(wilson_interval(8, 10))
    assert point.get_xydata().tolist() == [[4, 0.8]]
    assert len(axes.lines) == 4
