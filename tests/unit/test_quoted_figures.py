"""Every figure that a text quotes has a source: a result, a constant of the code, or a citation."""

import json
import re
from statistics import median

import pytest

from benchmarks import fast_preset
from playground.common.format import format_percent
from playground.common.stats import Z_95
from playground.experiments import analysis
from playground.experiments.presets import list_presets
from playground.finetuning import classifier
from playground.lessons import bug_comparison, measurements
from playground.lessons.bugs import BUGS
from playground.lessons.lessons import HISTORY_SETTINGS, LESSONS
from playground.models.config import ModelConfig
from playground.models.stack_config import POSITION_TYPES
from playground.pretrained import model_facts
from playground.tasks.specs import TASKS
from playground.training.presets import PRESETS
from playground.training.train_config import TrainConfig
from tests.support.app_server import ROOT

FIGURE = re.compile(r"(?<![\w.,])(\d+(?:,\d{3})*(?:\.\d+)?[ \u00a0](?:%|times\b|steps\b(?!/)))")
LESSON_TEXTS = ("title", "introduction", "instruction", "question", "choices")
BUG_TEXTS = ("title", "origin", "explanation", "silent_when")


def accuracy(setting):
    """Return the result of a setting of benchmarks/results/accuracy.json."""
    path = ROOT / "benchmarks" / "results" / "accuracy.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if row["setting"] == setting)


def benchmark_rows(name):
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def median_steps(preset):
    """Return the median steps of a preset to the goal, on sequences of 1 to 10 digits."""
    goals = benchmark_rows("fast-preset")["goals"]
    goal = next(row for row in goals if row["setting"] == "reverse, lengths 1 to 10")
    return median(run["steps"] for run in goal[preset])


def counted(model):
    """Return the parameter count of a well-known model."""
    _, built, config, fields, _ = next(row for row in model_facts.COUNTED if row[0] == model)
    return model_facts.count_parameters(built, config, tuple(fields.items()))


def strings(value):
    """Return all texts in nested lists and dictionaries."""
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return (
        [text for each in values for text in strings(each)]
        if isinstance(values, list | tuple | type({}.values()))
        else []
    )


def page_lines():
    """Return the lines of the page's scripts, without comments."""
    return [
        line
        for path in sorted((ROOT / "playground" / "ui" / "static").rglob("*.js"))
        if "vendor" not in path.parts
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith(("//", "*", "/*"))
    ]


def document_texts(name):
    return [(ROOT / name).read_text(encoding="utf-8")]


def texts():
    """Return the texts that may quote a figure, by their origin."""
    return {
        "lessons": [
            text
            for lesson in LESSONS.values()
            for field in LESSON_TEXTS
            for text in strings(getattr(lesson, field))
        ],
        "bugs": [
            text for bug in BUGS.values() for field in BUG_TEXTS for text in [getattr(bug, field)]
        ],
        "model facts": strings(
            [
                model_facts.ARCHITECTURE_FACTS,
                model_facts.ARCHITECTURE_TREE,
                model_facts.COUNTED,
                model_facts.CITED,
            ]
        ),
        "presets": strings(list_presets()),
        "training presets": [preset.description for preset in PRESETS.values()],
        "page": page_lines(),
        "README.md": document_texts("README.md"),
        # sources.md is computed, see tests/integration/inspection/test_sources.py
        **{
            f"docs/{path.name}": document_texts(f"docs/{path.name}")
            for path in sorted((ROOT / "docs").glob("*.md"))
            if path.name != "sources.md"
        },
    }


BERT = "Devlin et al. 2018, section 3.1"
# The source of each figure: a condition, or a citation.
SOURCES = {
    "lessons": {
        "10 steps": lambda: measurements.EVAL_INTERVAL == 10,
        "20 steps": lambda: TrainConfig().warmup_steps == 20,
        "400 steps": lambda: HISTORY_SETTINGS["max_steps"] == 400,
        "50 %": lambda: all("share < 0.5" in text for text in measurement_sources()),
        "99 %": lambda: measurements.TARGET_SCORE == 0.99,
    },
    "model facts": {
        "15 %": BERT,
        "80 %": BERT,
        "10 %": BERT,
        "112 times": lambda: round(counted("GPT-3") / counted("GPT-2 XL")) == 112,
    },
    "training presets": {
        "99.9 %": lambda: fast_preset.TARGET_SCORE == 0.999,
        "2,000 steps": lambda: PRESETS["paper"].settings["max_steps"] == 2000,
        "90 steps": lambda: median_steps("fast") == 90,
        "150 steps": lambda: median_steps("adam") == 150,
    },
    "presets": {"99 %": lambda: analysis.TARGET_SCORE == 0.99},
    "page": {
        "0 %": lambda: format_percent(0.0) == "0 %",
        "0.1 %": "the rounding of shared/format.js, with a test in tests/js/format.test.js",
        "100 %": lambda: format_percent(1.0) == "100 %",
        "10 steps": lambda: bug_comparison.LOSS_WINDOW == 10,
        "60 steps": lambda: classifier.MIN_USEFUL_STEPS == 60,
        "95 %": lambda: round(Z_95, 2) == 1.96,
        "99 %": lambda: "const TARGET_SCORE = 0.99;" in "\n".join(page_lines()),
    },
    "README.md": {
        "99.9 %": lambda: accuracy("reverse, lengths 1 to 10")["lowest_score"] >= 0.999,
        "95 %": lambda: round(Z_95, 2) == 1.96,
    },
    "docs/cli.md": {"99.9 %": "the argument 0.999 of --stop-at-exact-match in the same sentence"},
    "docs/frontend.md": {
        "80 %": lambda: json.loads((ROOT / ".c8rc.json").read_text())["lines"] == 80
    },
    "docs/teaching.md": {
        "200 steps": lambda: TrainConfig().max_steps == 200,
        "400 steps": lambda: HISTORY_SETTINGS["max_steps"] == 400,
        "50 %": lambda: all("share < 0.5" in text for text in measurement_sources()),
        "99 %": lambda: measurements.TARGET_SCORE == 0.99,
    },
}


def measurement_sources():
    """Return the source of the modules that compare exact match with one half."""
    folder = ROOT / "playground" / "lessons"
    return [(folder / name).read_text() for name in ("measurements.py", "history_measurements.py")]


def quoted(lines):
    return {figure.replace("\u00a0", " ") for text in lines for figure in FIGURE.findall(text)}


@pytest.mark.parametrize("origin", texts())
def test_every_quoted_figure_has_a_source_that_agrees(origin):
    declared = SOURCES.get(origin, {})
    assert quoted(texts()[origin]) == set(declared)
    for figure, source in declared.items():
        assert source if isinstance(source, str) else source(), figure


def test_figures_are_extracted_from_sentences():
    assert quoted(["It rises to 97.5 % after 1,200 steps, 3 times as fast; 20 steps/s, x99 %"]) == {
        "97.5 %",
        "1,200 steps",
        "3 times",
    }


NUMBERS = {"seven": 7, "eight": 8, "eleven": 11, "fifteen": 15, "four": 4}
# The count that follows from the code, for each phrase of a document.
COUNTS = {
    ("README.md", "{} tasks"): lambda: len(TASKS),
    ("README.md", "{} position encodings, or none"): lambda: len(POSITION_TYPES) - 1,
    ("README.md", "{} optimizers"): lambda: len(
        TrainConfig.__dataclass_fields__["optimizer"].metadata["choices"]
    ),
    ("README.md", "{} lessons"): lambda: len(LESSONS),
    ("docs/teaching.md", "{} lessons"): lambda: len(LESSONS),
    ("docs/teaching.md", "of the {} bugs"): lambda: len(BUGS),
}


@pytest.mark.parametrize(("document", "phrase"), COUNTS)
def test_counts_in_words_are_those_of_the_code(document, phrase):
    text = document_texts(document)[0].lower()
    pattern = re.escape(phrase.lower()).replace(r"\{\}", r"(\w+)")
    words = [word for word in re.findall(pattern, text) if word in NUMBERS]
    assert words
    assert {NUMBERS[word] for word in words} == {COUNTS[document, phrase]()}


def test_counts_of_the_lessons_are_those_of_the_default_model():
    lessons = " ".join(lesson.introduction for lesson in LESSONS.values())
    config = ModelConfig()
    assert f"Each update uses {TrainConfig().batch_size} of them" in lessons
    assert f"The model has {3 * config.n_layers * config.n_heads} heads of three kinds" in lessons
    assert f"over all {config.target_vocab_size} tokens" in lessons
    assert f"one vector of {config.d_model} numbers" in lessons
