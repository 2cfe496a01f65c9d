"""Figures of the documents and the page that a benchmark or the code gives."""

import json
import re
from pathlib import Path
from statistics import median

import pytest

from playground.lessons.bugs import BUGS
from playground.lessons.interpretability_measurements import INDUCTION_SCORE
from playground.lessons.lessons import LESSONS
from playground.models.config import TransformerConfig
from playground.tasks.specs import TASKS
from playground.training.presets import PRESETS
from playground.training.train_config import TrainConfig
from tests.support.app_server import ROOT


def document_text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def accuracy(setting):
    """Return the result of a setting of benchmarks/results/accuracy.json."""
    path = ROOT / "benchmarks" / "results" / "accuracy.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if row["setting"] == setting)


def benchmark_rows(name):
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def steps_of_preset(preset):
    """Return the steps of each seed of a preset to the goal, on sequences of 1 to 10 digits."""
    goals = benchmark_rows("fast-preset")["goals"]
    goal = next(row for row in goals if row["setting"] == "reverse, lengths 1 to 10")
    return [run["steps"] for run in goal[preset]]


def median_seconds(model, setting="reverse, lengths 1 to 10"):
    """Return the median CPU seconds of a model to 99.9 % exact match, over its seeds."""
    runs = [
        run["seconds"]
        for run in benchmark_rows("peers")["runs"]
        if (run["part"], run["end_reason"], run["setting"], run["model"])
        == ("seeds", "goal", setting, model)
    ]
    assert len(runs) >= 3
    return median(runs)


def test_the_lesson_on_induction_heads_quotes_the_seeds_of_the_benchmark():
    rows = benchmark_rows("induction")
    for label, n_above in (("one layer", 0), ("two layers", 5)):
        scores = [row["prefix_matching"] for row in rows if row["run"] == label]
        assert len(scores) == 5
        assert sum(score > INDUCTION_SCORE for score in scores) == n_above


def test_measured_figures_of_the_texts_are_those_of_the_results():
    readme = document_text("README.md")
    assert "9 seconds" in readme
    assert 8 <= median(benchmark_rows("page")["done_seconds"]) < 10
    assert "99.9 %" in readme
    assert accuracy("reverse, lengths 1 to 10")["lowest_score"] >= 0.999
    descriptions = " ".join(preset.description for preset in PRESETS.values())
    adam, fast = steps_of_preset("adam"), accuracy("reverse, lengths 1 to 10")["steps"]
    assert f"needs {min(adam)} to {max(adam)} steps to" in descriptions
    assert f"Fast needs {min(fast)} to {max(fast)} steps" in descriptions
    assert (len(adam), len(fast)) == (5, 10)


def ratios_by_seed(model):
    """Return the training seconds of a model against ours, for each seed."""
    setting, seconds = "reverse, lengths 1 to 10", {}
    for run in benchmark_rows("peers")["runs"]:
        if (run["part"], run["setting"]) == ("seeds", setting):
            seconds[run["model"], run["seed"]] = run["seconds"]
    ours = {seed: value for (name, seed), value in seconds.items() if name == "this project"}
    return [seconds[model, seed] / value for seed, value in ours.items()]


def test_the_speed_in_the_readme_is_measured():
    text = document_text("README.md")
    bart, nn_transformer = "BART, dropout 0", "nn.Transformer at its best, dropout 0"
    for models, phrase in (
        ([bart], "BART needs {:.1f} to {:.1f} times the CPU time of the default preset"),
        ([nn_transformer], "`nn.Transformer` needs {:.1f} to {:.1f} times (Adam, three seeds)"),
        (
            [f"{bart}, trained like ours", f"{nn_transformer}, trained like ours"],
            "With our preset, they need {:.1f} to {:.1f} times: most gain is Muon",
        ),
    ):
        ratios = [ratio for model in models for ratio in ratios_by_seed(model)]
        assert phrase.format(min(ratios), max(ratios)) in text
    assert "On a single length, `nn.Transformer` with our preset is the fastest" in text
    fastest = median_seconds(f"{nn_transformer}, trained like ours", "reverse, length 10")
    names = {run["model"] for run in benchmark_rows("peers")["runs"] if run["part"] == "seeds"}
    assert fastest == min(median_seconds(name, "reverse, length 10") for name in names)


NUMBERS = {"seven": 7, "seventeen": 17}
# The count that follows from the code, for each phrase of a document.
COUNTS = {
    ("README.md", "{} tasks"): lambda: len(TASKS),
    ("docs/teaching.md", "of the {} bugs"): lambda: len(BUGS),
}


@pytest.mark.parametrize(("document", "phrase"), COUNTS)
def test_counts_in_words_are_those_of_the_code(document, phrase):
    text = document_text(document).lower()
    pattern = re.escape(phrase.lower()).replace(r"\{\}", r"(\w+)")
    words = [word for word in re.findall(pattern, text) if word in NUMBERS]
    assert words
    assert {NUMBERS[word] for word in words} == {COUNTS[document, phrase]()}


def test_counts_of_the_lessons_are_those_of_the_default_model():
    lessons = " ".join(f"{each.introduction} {each.instruction}" for each in LESSONS.values())
    config = TransformerConfig()
    assert f"Each training step uses {TrainConfig().batch_size} of them" in lessons
    assert f"each of the {3 * config.n_layers * config.n_heads} heads in all three ways" in lessons
    assert f"one vector of {config.d_model} numbers" in lessons


def plain_text(path: Path) -> str:
    """Return the text of a file, with the strings of a program joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    text = re.sub(r"""["'`]\s*\+?\s*\n\s*[fr]?["'`]""", "", text)  # strings that follow each other
    return " ".join(text.replace("\\\n", "").replace("\\u00a0", " ").split())


def test_corrected_statements_are_those_of_the_code():
    quotes = re.findall(r"- New, `([^`]+)`: “(.*?)”(?!\w)", document_text("docs/corrections.md"))
    assert len(quotes) > 40
    missing = [
        (path, part)
        for path, quote in quotes
        for part in re.split(r"…|\{[^}]*\}", quote)
        if " ".join(part.split()) not in plain_text(ROOT / path)
    ]
    assert not missing
