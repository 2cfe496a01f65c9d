import ast
import dataclasses
import itertools
import json
import re
import shlex
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from playground.__main__ import main
from playground.checkpoints.checkpoint import load_model, save_checkpoint
from playground.checkpoints.manifest import Manifest, read_manifest
from playground.cli.datasets import READING_OPTIONS
from playground.cli.train import build_config
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import read_text
from playground.datasets.storage import store
from playground.evaluation import evaluate
from playground.hub.existing_card import read_scores
from playground.hub.markdown import escape, format_code, format_literal
from playground.hub.model_card import training_command, write_card
from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set, is_held_out
from playground.tasks.vocabulary import INVISIBLE
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

EXAMPLE = re.compile(r"^\| `([^`]*)` \| (?:`([^`]*)`|\(empty\)) \| (.*) \|$", re.MULTILINE)
HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(1)> &lt;b&gt;
![spy](https://evil.example/spy.png) [free](javascript:alert(1)) ![r][x]
[x]: https://evil.example/spy.png
---
model-index: [{name: lie, results: [{metrics: [{type: exact_match, value: 1.0, args: {n: 9}}]}]}]
---
# A heading
```python
print("not the model's snippet")
```
| a | b |
|---|---|
    indented
1. one
- two
===
* * *
$$x$$ ~~old~~ **bold** __under__ `code` \\*back\\* <https://evil.example>
right\u202eto left\u2028 \x00\x1b[31m{{ template }} {% raw %}"""


def card_of(folder, checkpoint, **arguments):
    """Return the folder of a package with the card of a checkpoint."""
    folder.mkdir(exist_ok=True)
    write_card(folder, checkpoint, **({"repo": "ada/digits"} | arguments))
    return folder


def text_of(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def saved(folder, config, steps, scores=False, metrics=True, changes=()):
    """A checkpoint of a run after `steps` steps."""
    trainer = Trainer(config, changes)
    lines = [trainer.train_step() for _ in range(steps)]
    save_checkpoint(
        folder, trainer, lines if metrics else None, trainer.evaluate(200) if scores else None
    )
    return folder


def rewritten(checkpoint, folder, **values):
    """Return a copy of a checkpoint with another config.json."""
    shutil.copytree(checkpoint, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Draw no pictures but those of the cards below, of the scope of the module."""
    for module in ("card_measurements", "model_card"):
        monkeypatch.setattr(f"playground.hub.{module}.render", lambda *_: b"\x89PNG")


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    home = tmp_path_factory.mktemp("cards")
    return {name: card_of(home / name, ROOT / "checkpoints" / name) for name in ("copy", "reverse")}


@pytest.fixture(scope="module")
def young(tmp_path_factory, small_run):
    """A checkpoint after one step."""
    home = tmp_path_factory.mktemp("young")
    return card_of(home / "package", saved(home / "checkpoint", small_run, 1))


def assert_whole(folder):
    """Check a card: it parses, its pictures exist, and no section is empty."""
    text = text_of(folder)
    card = ModelCard.load(folder / "README.md")
    assert str(card) == text
    named = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text)
    assert all(len(alt) > 20 for alt, _ in named)
    expected = ["README.md", "evaluation.json", *(name for _, name in named)]
    assert sorted(path.name for path in folder.iterdir()) == sorted(expected)
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for _, name in named)
    assert not re.search(
        r"\bNone\b|\bnan\b|\binf\b|More Information Needed|\{\w*\}|\{\{|TODO|  \n|\n\n\n", card.text
    )
    without_code = re.sub(r"^```.*?^```", "code", card.text, flags=re.M | re.S)
    sections = re.split(r"^#+ .*$", without_code, flags=re.M)[1:]
    assert len(sections) >= 7
    assert all(section.strip() for section in sections)
    scores = json.loads((folder / "evaluation.json").read_text())
    assert read_scores(text) == {key: scores[key] for key in ("exact_match", "n", "token_accuracy")}
    snippet = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    compile(snippet, "card", "exec")
    return text, card


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_the_card_of_a_shipped_checkpoint_is_whole(cards, name):
    text, card = assert_whole(cards[name])
    assert card.data.tags == ["transformer-playground", name, "transformer"]
    assert [each.metric_value for each in card.data.eval_results] == [1.0, 1.0]
    assert "positions for 10 tokens and the end token, and cannot process longer" in text


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_the_worked_examples_are_the_models_own_on_held_out_sequences(cards, name):
    manifest, family = load_model(ROOT / "checkpoints" / name)
    task = load_task(manifest.config.task.task)
    result = EXAMPLE.findall(text_of(cards[name]))
    assert len(result) == len(set(result)) == 3
    for source, inputs, verdict in result:
        tokens = torch.tensor([task.vocabulary.encode(source)])
        assert bool(is_held_out(tokens, torch.tensor([tokens.shape[1]])))
        ended = torch.nn.functional.pad(tokens, (0, 1), value=2)
        assert inputs == " ".join(task.vocabulary.decode(family.generate(ended, 11)[0].tolist()))
        assert verdict == "correct"
        assert inputs == (source if name == "copy" else source[::-1])
    printed = re.search(
        r'tokenizer\("(.*)", return_tensors(?:.*\n)+?print\(.*\)  # (.*)\n', text_of(cards[name])
    )
    assert printed.groups() == result[0][:2]


def test_the_card_has_the_recorded_text(cards):
    recorded = ROOT / "tests" / "data" / "model_cards" / "reverse.txt"
    # A new setting is a row of this table and changes no sentence, but the digest.
    rows = re.compile(r"(?<=\| setting \| value \| meaning \|\n)(\|.*\n)+|^  digest: .*\n", re.M)
    text = rows.sub("", text_of(cards["reverse"])).replace("digits", "reverse")
    assert text == rows.sub("", recorded.read_text(encoding="utf-8"))


def test_a_checkpoint_without_scores_is_scored(cards, tmp_path):
    checkpoint = rewritten(ROOT / "checkpoints" / "reverse", tmp_path / "c", scores=None)
    assert text_of(card_of(tmp_path / "p", checkpoint)) == text_of(cards["reverse"])


def test_partly_correct_scores_are_reported_exactly(tmp_path):
    scores = read_manifest(ROOT / "checkpoints" / "reverse").scores
    line = {"length": 1, "n": 0, "available": 0, "exact_match": None, "token_accuracy": None}
    odd = {"n": 2000, "exact_match": 0.99951, "token_accuracy": None}
    odd["by_length"] = [line, *scores["by_length"][1:]]
    checkpoint = rewritten(ROOT / "checkpoints" / "reverse", tmp_path / "c", scores=odd)
    text, card = assert_whole(card_of(tmp_path / "p", checkpoint))
    assert "solves 1,999 of 2,000 held-out sequences exactly (99.95 %)" in text
    assert "| 1 | 0 | 0 | – | – | – |" in text
    assert "No sequence of length 1 is held out" in text
    assert [each.metric_type for each in card.data.eval_results] == ["exact_match"]


def test_a_barely_trained_model_has_a_note(young):
    text, _ = assert_whole(young)
    assert "**It has not learned its task.**" in text
    assert "\n1 step in " in text
    wrong = EXAMPLE.findall(text)
    assert len(wrong) == 3
    for source, _, verdict in wrong:
        assert verdict.startswith(f"**wrong**: the target is `{source[::-1]}`")
    assert "  # " not in re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert "python -m playground train --task reverse --min-length 1 --length 5" in text


def test_an_untrained_model_without_metrics_has_no_picture_of_its_training(tmp_path, small_run):
    checkpoint = saved(tmp_path / "c", small_run, 0, metrics=False)
    text, _ = assert_whole(card_of(tmp_path / "p", checkpoint))
    assert "training.png" not in text
    assert "playground train --task" not in text
    assert "(cross-attention.png)" in text
    assert "0 steps in" in text


def test_card_of_a_fixed_training_set_without_eos_has_notes(tmp_path, small_run):
    data = {"min_length": 3, "max_length": 3, "n_training_sources": 20, "held_out_one_in": 4}
    sizes = {"predict_eos": False, "eval_size": 8, "d_model": 8, "n_heads": 1}
    config = small_run.from_flat(data | sizes)
    checkpoint = saved(tmp_path / "c", config, 2, scores=True)
    text, _ = assert_whole(card_of(tmp_path / "p", checkpoint))
    assert "from a fixed set of 20 sequences with seed 0" in text
    assert "holds out one in 4." in text
    assert "the end token" not in text.split("## Evaluation")[1].split("##")[0]
    assert "no end token" not in text
    targets = re.findall(r"the target is `([^`]*)`", text)
    assert targets
    assert all(re.fullmatch(r"\d \d \d", target) for target in targets)


def test_untrained_lengths_are_measured_if_positions_exist(tmp_path, small_run):
    config = small_run.replace(min_length=3, max_positions=9, max_steps=40)
    text, _ = assert_whole(card_of(tmp_path / "p", saved(tmp_path / "c", config, 40, scores=True)))
    _, family = load_model(tmp_path / "c")
    for length in (2, 6, 8):
        held_out = build_held_out_set(load_task("reverse"), 200, length, length)
        measured = evaluate(family, held_out)
        share = f"{100 * measured.exact_match:.2f} %"
        result = f"exact match is {share} on {measured.n} sequences."
        assert f"At length {length}, which does not occur in training, {result}" in text
        assert f"| {length} (not in training) | {measured.n} |" in text
    assert "cannot process longer" not in text
    rows = re.findall(r"^\| (\d+)(?: \(not in training\))? \| \d+ \|", text, re.MULTILINE)
    assert rows == ["2", "3", "4", "5", "6", "8"]


def test_changes_during_training_are_listed(tmp_path, small_run):
    changes = [
        SettingChange(0, "speed", 20.0),
        SettingChange(1, "learning_rate", 0.001),
        SettingChange(2, "max_steps", 40),
        SettingChange(3, "learning_rate", 0.5),  # of the next step
    ]
    checkpoint = saved(tmp_path / "c", small_run, 3, changes=changes)
    text, _ = assert_whole(card_of(tmp_path / "p", checkpoint))
    listed = "- from step 2 on, `learning_rate` was 0.001\n- from step 3 on, `max_steps` was 40\n\n"
    assert f"Settings changed during training:\n\n{listed}" in text
    assert "This command has the same settings, without the changes during training:" in text


def rows_config(symbols, origin=None, ending=""):
    """Return the settings of a run on a stored dataset of all triples of these symbols."""
    triples = itertools.product(symbols, repeat=3)
    rows = read_text("".join(f"{a} {b} {c}{ending}\t{c} {b} {a}\n" for a, b, c in triples))
    store(dataclasses.replace(rows, origin=origin) if origin else rows)
    sizes = {"d_model": 16, "n_heads": 1, "n_layers": 1, "d_ff": 16}
    return RunConfig.from_flat(rows.task_settings() | sizes)


def test_no_license_is_claimed_for_other_peoples_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "here"))
    package = card_of(tmp_path / "p", saved(tmp_path / "c", rows_config("abcdefg"), 2, scores=True))
    text, card = text_of(package), ModelCard.load(package / "README.md")
    assert card.data.license is None
    assert "The author names no license for the weights" in text
    assert not re.search(r"MIT, for|mit, for", text)


def test_the_license_of_a_hub_dataset_is_copied_and_linked(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "here"))
    origin = {"dataset": "cy/verses", "license": "cc-by-sa-4.0"}
    checkpoint = saved(tmp_path / "c", rows_config("abcdefg", origin), 2, scores=True)
    package = card_of(tmp_path / "p", checkpoint)
    text, card = text_of(package), ModelCard.load(package / "README.md")
    assert (card.data.license, card.data.datasets) == ("cc-by-sa-4.0", ["cy/verses"])
    assert "[cy/verses](https://huggingface.co/datasets/cy/verses), whose terms apply" in text
    package = card_of(tmp_path / "q", checkpoint, license="cc0-1.0")
    assert ModelCard.load(package / "README.md").data.license == "cc0-1.0"


def rendered(text):
    """Return a card's HTML from a renderer that passes HTML through."""
    return MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(
        re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    )


def flat(tokens):
    return [each for token in tokens for each in [token, *(token.children or [])]]


def test_untrusted_text_has_no_markup():
    text = "\n\n".join(escape(line) for line in HOSTILE.splitlines())
    tokens = flat(rendered(text))
    plain = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert {token.type for token in tokens} <= plain
    visible = "".join(token.content for token in tokens if token.type in ("text", "text_special"))
    for line in HOSTILE.splitlines()[:5]:
        assert line in visible
    assert not set("\u202e\u2028\x00\x1b") & set(text)


def test_hidden_characters_of_tokens_are_visible_on_a_card():
    assert escape("a \u200b \u202eb") == "a U+200B U+202Eb"
    assert format_code("a \u200b|", in_table=True) == "`a U+200B\\|`"
    text = '"\\ \u202e \U000e0041 \u00e9'
    literal = format_literal(text)
    assert not INVISIBLE.search(literal)
    assert ast.literal_eval(literal) == text


def test_versions_out_of_a_foreign_checkpoint_are_text_too(tmp_path):
    versions = {"<img src=x>": "1|2\n\n# A heading ![](http://evil.example/x.png)"}
    checkpoint = rewritten(ROOT / "checkpoints" / "reverse", tmp_path / "c", versions=versions)
    package = card_of(tmp_path / "p", checkpoint)
    types = [token.type for token in flat(rendered(text_of(package)))]
    assert types.count("image") == 2
    assert types.count("html_inline") == 0
    assert "&lt;img src=x&gt; 1\\|2  # A heading" in text_of(package)


CONFIGS = {
    "letters": RunConfig.from_flat({"n_symbols": 30, "task": "copy", "max_length": 6, "seed": 4}),
    "paper": preset_config("paper", {"max_length": 7}),
    "tutorial": preset_config("tutorial", {"stop_at_exact_match": 0.999, "num_threads": 2}),
    "switches": RunConfig.from_flat(
        dict.fromkeys(("tie_output_embeddings", "share_embeddings"), True)
        | {"attention_bias": False, "adam_eps": 1e-16, "max_positions": 30}
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_command_line_means_the_same_run(name):
    config = CONFIGS[name]
    words = shlex.split(training_command(Manifest(config, 137, 1.0, "cpu")))
    assert words[:4] == ["python", "-m", "playground", "train"]
    inputs = main.commands["train"].make_context("train", words[4:]).params
    preset = inputs.pop("preset")
    for other in ("out", "overwrite", "resume", "weights_only", "as_json", *READING_OPTIONS):
        inputs.pop(other)
    given = {key: value for key, value in inputs.items() if value is not None}
    assert build_config(given, preset) == config.replace(max_steps=137, device="cpu")


def test_the_command_line_is_short_where_a_preset_suffices():
    assert training_command(Manifest(preset_config("one-head"), 600, 1.0, "cpu")) == (
        "python -m playground train --task reverse --min-length 1 --length 10 --preset one-head "
        "--device cpu"
    )
    assert training_command(Manifest(RunConfig(), 0, 0.0, "cpu")) is None


def front(yaml):
    return f"---\n{yaml}\n---\n\n# A card\n"


def index(metric):
    return front(f"model-index: [{{name: m, results: [{{metrics: [{metric}]}}]}}]")


FOREIGN = {
    "open": "---\nmodel-index: []\n",
    "no YAML": front("a: [b"),
    "python tag": front("a: !!python/object/apply:os.system [echo]"),
    "bad date": front("a: 2001-99-99"),
    "deep": front("a: " + "[" * 5000),
    "aliases": front(
        "a: &a [x, x]\n"
        + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in itertools.pairwise("abcdefghijklmn"))
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_cards_have_no_scores_and_break_nothing(name):
    assert read_scores(FOREIGN[name]) is None


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.just("exact_match")
KEYS = st.sampled_from(["name", "results", "metrics", "type", "value", "args", "n"])
CONTENT = st.recursive(
    LEAVES, lambda each: st.lists(each) | st.dictionaries(KEYS, each), max_leaves=8
)
METRIC = st.fixed_dictionaries({"type": CONTENT, "value": CONTENT, "args": CONTENT})


@given(st.one_of(CONTENT, METRIC.map(lambda each: [{"results": [{"metrics": [each]}]}])))
def test_scores_of_any_metadata_are_shares_of_a_number(models):
    scores = read_scores({"model-index": models})
    assert scores is None or (0 <= scores["exact_match"] <= 1 and scores["n"] > 0)


def test_scores_are_indexed_beside_others():
    text = index("{type: bleu, value: 3}, {type: exact_match, value: 1, args: {n: 7}}")
    assert read_scores(text.replace("\n", "\r\n")) == {
        "exact_match": 1.0,
        "n": 7,
        "token_accuracy": None,
    }


def test_model_card_escapes_symbols_and_builds_without_the_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "here"))
    hostile = ["<script>", "`a", "b```", "|", '"q', "[x](http://e)", "**b**", "\\\\", "\u202e"]
    config = rows_config(hostile, ending=" ](http://e)")
    checkpoint = saved(tmp_path / "c", config, 2, scores=True)
    bare = saved(tmp_path / "bare", config, 2)
    assert training_command(read_manifest(checkpoint)) is None
    for place, rows_rendered in (("here", True), ("elsewhere", False)):
        monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / place))
        text = text_of(card_of(tmp_path / f"package-{place}", checkpoint))
        markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        page = markdown.render(text.split("\n---\n", 1)[1])
        assert "<script>" not in page
        assert '<a href="http://e' not in page
        assert 'src="http://e' not in page
        assert not INVISIBLE.search(page)
        assert config.task.dataset_sha256 in text
        assert ("held-out sequence |" in text) == rows_rendered
        for snippet in re.findall("```python\n(.*?)```\n", text, re.DOTALL):
            compile(snippet, "card", "exec")
    with pytest.raises(DatasetError, match="is not stored here"):
        card_of(tmp_path / "package", bare)
