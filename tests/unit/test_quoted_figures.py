"""Every figure that a text quotes has a source: a result, a constant of the code, or a citation."""

import json
import math
import re
from dataclasses import replace
from inspect import signature
from statistics import median

import pytest
import transformers

from benchmarks import fast_preset
from playground.common.format import format_percent
from playground.common.stats import Z_95, wilson_interval
from playground.comparison.examples import choices_for
from playground.datasets.sources import MAX_BYTES, from_hub
from playground.experiments import analysis, presets, replications
from playground.experiments.claims import CLAIMS
from playground.experiments.presets import list_presets
from playground.experiments.replications import replication_config
from playground.finetuning import classifier, labeled_texts
from playground.lessons import bug_comparison, lessons, measurements
from playground.lessons.bugs import BUGS
from playground.lessons.lessons import HISTORY_SETTINGS, LESSONS
from playground.models.config import ModelConfig, paper_base_config
from playground.models.stack_config import POSITION_TYPES
from playground.pretrained.prompts import Example
from playground.runs.training_worker import CHECKPOINT_INTERVAL_S
from playground.tasks.specs import TASKS
from playground.training.config import RunConfig, field_named, section_of_field
from playground.training.presets import PRESETS
from playground.training.task_config import TaskConfig
from playground.training.train_config import TrainConfig
from playground.training.trainer import FINAL_EVAL_SIZE
from tests.support.app_server import ROOT

UNITS = r"%|times\b|steps\b(?!/)"
# also in texts of the page: sizes, durations and counts
MORE_UNITS = (
    r"|tokens\b|digits\b|numbers\b|heads\b|layers\b|vectors\b|rows\b|seconds\b|bytes\b|MB\b|GB\b"
    r"|parameters\b|M\b|B\b|forward passes\b|updates\b|epochs\b|sequences\b|problems\b"
)
NUMBER = r"(?<![\w.,])(\d+(?:,\d{3})*(?:\.\d+)?[ \u00a0](?:"
FIGURE = re.compile(f"{NUMBER}{UNITS}))")
FIGURE_OR_SIZE = re.compile(f"{NUMBER}{UNITS}{MORE_UNITS}))")
WITH_SIZES = (
    "lessons",
    "presets",
    "training presets",
    "settings",
    "claims",
    "page",
    "README.md",
)
LESSON_TEXTS = ("title", "introduction", "instruction", "question", "choices")
TEN_TOKENS = Example(tuple("3141592650"), tuple("0562951413"))  # of the task reverse
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
        "presets": strings(list_presets()),
        "training presets": [preset.description for preset in PRESETS.values()],
        "settings": [field_named(name).metadata["help"] for name in section_of_field()],
        "claims": [
            text
            for claim in CLAIMS.values()
            for text in (claim.title, claim.statement, claim.criterion, *claim.deviations)
        ],
        "page": page_lines(),
        "README.md": document_texts("README.md"),
        # sources.md is computed, see tests/integration/inspection/test_sources.py
        **{
            f"docs/{path.name}": document_texts(f"docs/{path.name}")
            for path in sorted((ROOT / "docs").glob("*.md"))
            if path.name != "sources.md"
        },
    }


RASP = "tech-srl/RASP-exps, multirun.sh"
KAZEMNEJAD = "Kazemnejad et al. 2023, appendix on the training"
# The source of each figure: a condition, or a citation.
SOURCES = {
    "lessons": {
        "5 digits": lambda: lessons.TRAIN_MAX_LENGTH == 5,
        "10 digits": lambda: TaskConfig().max_length == 10,
        "24 heads": lambda: 3 * ModelConfig().n_layers * ModelConfig().n_heads == 24,
        "64 numbers": lambda: ModelConfig().d_model == 64,
        "10 steps": lambda: measurements.EVAL_INTERVAL == 10,
        "400 steps": lambda: HISTORY_SETTINGS["max_steps"] == 400,
        "50 %": lambda: all("share < 0.5" in text for text in measurement_sources()),
        "99 %": lambda: measurements.TARGET_SCORE == 0.99,
    },
    "model facts": {
        "15 %": BERT,
        "80 %": BERT,
        "10 %": BERT,
        "12 layers": lambda: (
            {sizes("BERT base")[0], sizes("GPT-2")[0], sizes("T5 base")[0]} == {12}
        ),
        "12 heads": lambda: {sizes("BERT base")[2], sizes("GPT-2")[2]} == {12},
        "24 layers": lambda: sizes("BERT large")[0] == 24,
        "16 heads": lambda: sizes("BERT large")[2] == 16,
        "48 layers": lambda: sizes("GPT-2 XL")[0] == 48,
        "25 heads": lambda: sizes("GPT-2 XL")[2] == 25,
        "96 layers": lambda: sizes("GPT-3")[0] == 96,
        "96 heads": lambda: sizes("GPT-3")[2] == 96,
        "30,522 tokens": lambda: library_config("BERT base").vocab_size == 30_522,
        "50,257 tokens": lambda: library_config("GPT-2").vocab_size == 50_257,
        "37,000 tokens": "Vaswani et al. 2017, section 5.1",
        "112 times": lambda: round(counted("GPT-3") / counted("GPT-2 XL")) == 112,
        "110 M": BERT_SIZES,
        "340 M": BERT_SIZES,
        "117 M": "Radford et al. 2019, table 2",
        "175 B": "Brown et al. 2020, table 2.1",
        "32 layers": lambda: sizes("LLaMA 7B")[0] == sizes("Mistral 7B")[0] == 32,
        "32 heads": lambda: sizes("LLaMA 7B")[2] == sizes("Mistral 7B")[2] == 32,
        "8 heads": lambda: library_config("Mistral 7B").num_key_value_heads == 8,
        "32,000 tokens": lambda: (
            {library_config(name).vocab_size for name in ("LLaMA 7B", "Mistral 7B")} == {32_000}
        ),
        "6.7 B": lambda: round(counted("LLaMA 7B") / 1e9, 1) == 6.7,
        "7 B": lambda: round(counted("Mistral 7B") / 1e9) == round(counted("LLaMA 7B") / 1e9) == 7,
        "63.1 M": lambda: base_with_one_table() == 63.1,
        "101.0 M": lambda: millions(paper_base_config(vocab_size=37_000)) == 101.0,
    },
    "training presets": {
        "10 digits": "the setting of median_steps",
        "99.9 %": lambda: fast_preset.TARGET_SCORE == 0.999,
        "2,000 steps": lambda: PRESETS["paper"].settings["max_steps"] == 2000,
        "70 steps": lambda: median_steps("fast") == 70,
        "160 steps": lambda: median_steps("adam") == 160,
    },
    "presets": {
        "99 %": lambda: analysis.TARGET_SCORE == 0.99,
        "10 tokens": lambda: presets.BASE_SETTINGS["max_length"] == 10,
    },
    "settings": {
        "1.5 times": "SwiGLU has three matrices instead of two",
        "2,000 sequences": lambda: FINAL_EVAL_SIZE == 2000,
    },
    "claims": {
        "10,346 parameters": lambda: uva_parameters() == 10_346,
        "14,734,861 parameters": lambda: parameters("annotated-copy") == 14_734_861,
        "70,000 parameters": lambda: round(experiment_parameters("length-order"), -4) == 70_000,
        "13 tokens": lambda: replication_config("annotated-copy").model.source_vocab_size == 13,
        "10 epochs": lambda: CLAIMS["annotated-copy"].settings["max_steps"] == 10 * 20,
        "1,200 updates": lambda: base_of("two-layers")["max_steps"] == 1200,
        "2,000 updates": lambda: base_of("length-order")["max_steps"] == 2000,
        "5,000 updates": lambda: CLAIMS["grokking"].threshold == 5000,
        "50 %": lambda: replications.MAX_ONE_LAYER == 0.5,
        "95 %": lambda: round(Z_95, 2) == 1.96 and replications.MIN_TWO_LAYERS == 0.95,
        "98 %": lambda: wilson_interval(204, 204)[0] > 0.98,
        "99.4 %": lambda: round(wilson_interval(999, 1000)[0], 3) == 0.994,
        "99.5 %": lambda: CLAIMS["mingpt-addition"].threshold == 0.995,
        "100.00 %": lambda: CLAIMS["uva-reversal"].threshold == 0.99995,  # the bound of rounding
        # the cosine without a lower limit reaches a tenth
        "80 %": lambda: round(math.acos(2 * 0.1 - 1) / math.pi, 1) == 0.8,
        "90 %": lambda: (
            replications.GENERALIZED == 0.9 and math.exp(-replications.MEMORIZED_LOSS) > 0.9
        ),
        "99 %": "the model card davidnet/grokking-mechanism",
        "100 %": "phlippe/uvadlc_notebooks, tutorial 6, and the criterion of mingpt-sort",
        "10,000 problems": "pairs of two numbers below 100",
        "5,000 sequences": "karpathy/minGPT, demo.ipynb",
        "100 epochs": RASP,
        "50,000 sequences": RASP,
        "12 layers": KAZEMNEJAD,
        "40,000 updates": KAZEMNEJAD,
    },
    "page": {
        "0 %": lambda: format_percent(0.0) == "0 %",
        "0.1 %": "the rounding of shared/format.js, with a test in tests/js/format.test.js",
        "100 %": lambda: format_percent(1.0) == "100 %",
        "10 steps": lambda: bug_comparison.LOSS_WINDOW == 10,
        "96 layers": lambda: sizes("GPT-3")[0] == 96,
        "50 tokens": "the argument new_tokens of the same example",
        "100,000 rows": lambda: signature(from_hub).parameters["max_rows"].default == 100_000,
        "50 MB": lambda: MAX_BYTES == 50e6,
        "140 forward passes": lambda: len(choices_for(TEN_TOKENS)) * 10 == 140,
        "15 seconds": lambda: CHECKPOINT_INTERVAL_S == 15,
        "95 %": lambda: round(Z_95, 2) == 1.96,
        "99 %": lambda: "const TARGET_SCORE = 0.99;" in "\n".join(page_lines()),
    },
    "README.md": {
        "8 seconds": lambda: 7 <= median(benchmark_rows("page")["done_seconds"]) < 9,
        "99.9 %": lambda: accuracy("reverse, lengths 1 to 10")["lowest_score"] >= 0.999,
        "95 %": lambda: round(Z_95, 2) == 1.96,
    },
    "docs/cli.md": {"99.9 %": "the argument 0.999 of --stop-at-exact-match in the same sentence"},
    "docs/glossary.md": {"95 %": lambda: round(Z_95, 2) == 1.96},
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


def millions(config):
    return round(config.parameter_count() / 1e6, 1)


def base_with_one_table():
    """Return the millions of parameters of the paper's base model with one table of embeddings."""
    config = paper_base_config(vocab_size=37_000)
    return millions(replace(config, share_embeddings=True, tie_output_embeddings=True))


def parameters(claim):
    return replication_config(claim).model.parameter_count()


def base_of(claim):
    """Return the settings that all runs of a claim's experiment share."""
    return CLAIMS[claim].experiment["base"]


def experiment_parameters(claim):
    return RunConfig.from_flat(base_of(claim)).model.parameter_count()


def uva_parameters():
    """Return the parameters of the encoder of UvA's tutorial, with its layers for input and output.

    Our model has an embedding table and one linear layer there.
    """
    config = replication_config("uva-reversal").model
    d, n = config.d_model, TaskConfig().n_symbols
    ours = config.source_vocab_size * d + (d + 1) * config.target_vocab_size
    theirs = (n + 1) * d + (d + 1) * d + 2 * d + (d + 1) * n
    return config.parameter_count() - ours + theirs


def quoted(lines, pattern=FIGURE):
    return {figure.replace("\u00a0", " ") for text in lines for figure in pattern.findall(text)}


@pytest.mark.parametrize("origin", texts())
def test_every_quoted_figure_has_a_source_that_agrees(origin):
    declared = SOURCES.get(origin, {})
    pattern = FIGURE_OR_SIZE if origin in WITH_SIZES else FIGURE
    assert quoted(texts()[origin], pattern) == set(declared)
    for figure, source in declared.items():
        assert source if isinstance(source, str) else source(), figure


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


def test_the_speed_in_the_readme_is_measured():
    text = document_texts("README.md")[0]
    assert "needs about a fifth of the CPU time of BART. It needs a seventh of the time of" in text
    model, bart, nn_transformer = (
        "this project",
        "BART, dropout 0",
        "nn.Transformer at its best, dropout 0",
    )
    assert 0.18 <= median_seconds(model) / median_seconds(bart) <= 0.22
    assert 0.12 <= median_seconds(model) / median_seconds(nn_transformer) <= 0.16
    for reference in (bart, nn_transformer):
        assert median_seconds(f"{reference}, trained like ours") > median_seconds(model)
    assert "On a single length, `nn.Transformer` with our preset is the fastest" in text
    fastest = median_seconds(f"{nn_transformer}, trained like ours", "reverse, length 10")
    names = {run["model"] for run in benchmark_rows("peers")["runs"] if run["part"] == "seeds"}
    assert fastest == min(median_seconds(name, "reverse, length 10") for name in names)


def test_figures_are_extracted_from_sentences():
    assert quoted(["It rises to 97.5 % after 1,200 steps, 3 times as fast; 20 steps/s, x99 %"]) == {
        "97.5 %",
        "1,200 steps",
        "3 times",
    }
    assert quoted(["at most 50 MB in 30 seconds; 6 layers/s"], FIGURE_OR_SIZE) == {
        "50 MB",
        "30 seconds",
        "6 layers",
    }


NUMBERS = {"seven": 7, "eight": 8, "ten": 10, "fifteen": 15, "four": 4}
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
    assert f"Each training step uses {TrainConfig().batch_size} of them" in lessons
    assert f"The model has {3 * config.n_layers * config.n_heads} heads of three kinds" in lessons
    assert f"one vector of {config.d_model} numbers" in lessons
