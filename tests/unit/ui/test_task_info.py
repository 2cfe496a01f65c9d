"""The measured difficulty below the task field."""

from playground.tasks import TASKS
from playground.ui import task_info


def test_difficulty_of_a_task_is_formatted_from_measurements():
    row = {
        "task": "x",
        "seeds": 3,
        "budget": 600,
        "steps": [40, 60, 50],
        "scores": [0.991, 0.999, 0.995],
    }
    assert task_info.format_difficulty(row) == (
        "Solved in about 50 steps with Fast (3 seeds).",
        "Measured by python -m benchmarks tasks: 99 % exact match, fast preset, 600 steps, "
        "lengths 1 to 10, 3 seeds",
    )
    for changes, sentence in (
        ({"steps": [40, 60], "scores": [0.991, 0.999, 0.5]}, "Solved with Fast in 2 of 3 runs;"),
        ({"steps": [40], "scores": [0.991, 0.7, 0.5]}, "the worst reaches 50 % exact match."),
        (
            {"seeds": 1, "steps": [], "scores": [0.0049]},
            "Not solved with Fast: 0.4 % exact match (1 seed).",
        ),
    ):
        assert sentence in task_info.format_difficulty(row | changes)[0]


def test_a_task_has_a_description_an_example_and_its_minimum_length():
    about = task_info.describe_task("reverse")
    assert about["example"] == "3 1 4 1 5 → 5 1 4 1 3"
    assert about["description"].endswith(".")
    assert about["lengths"] == ""
    assert "Sequences have 2 tokens or more." in {
        task_info.describe_task(name)["lengths"] for name in TASKS
    }
