"""Classification heads: at chance before training, correct on held-out texts afterwards."""

import threading
from pathlib import Path

import pytest

from playground.comparison.process import run
from playground.errors import UserError
from playground.finetuning import classifier
from playground.finetuning.labeled_texts import read_labeled
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained.classification import RANDOM_HEADS
from playground.pretrained.pipelines import newly_initialized_weights, open_pipeline
from playground.pretrained.resolver import resolve

GOOD = ["good", "great", "fine", "lovely", "pleasant", "superb"]
BAD = ["bad", "awful", "poor", "dreadful", "nasty", "dull"]
ROWS = [
    (f"a {one}, {two} film", label)
    for label, words in (("pro", GOOD), ("contra", BAD))
    for one in words
    for two in words
    if one != two
]
CSV = "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in ROWS)
QUICK = {"csv": CSV, "learning_rate": 2e-3, "epochs": 6, "sentence": "a great, superb film"}


@pytest.fixture(autouse=True)
def own_place(monkeypatch, tmp_path):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))


def train(name, messages=None, **what):
    return run(
        "train-classifier",
        {"model": name, **QUICK, **what},
        ProgressReporter(lambda *message: (messages or []).append(message)),
    )


@pytest.mark.parametrize("kind", ["tiny_bert", "tiny_gpt2"])
def test_a_trained_classification_head_is_saved_as_a_model(kind, request, tmp_path):
    name, messages = request.getfixturevalue(kind), [("", "")]
    result = train(name, messages)
    rows = [content[0] for word, *content in messages if word == "row"]
    assert rows[0]["step"] == 0
    assert rows[-1]["step"] == result["steps"]
    assert rows[-1]["loss"] < rows[1]["loss"]
    assert rows[-1]["held_out_accuracy"] == result["held_out"]["accuracy"] >= 0.8
    assert result["held_out"]["low"] < result["held_out"]["accuracy"]
    assert result["chance"] == result["majority_fraction"] == 0.5
    assert result["before"]["note"] == "untrained: randomly initialized"
    after = result["after"]["labels"]
    assert after[0]["label"] == "pro"
    assert Path(result["folder"]).parent == tmp_path / "runs" / "classifiers"
    assert [path.name for path in Path(result["folder"]).parent.glob(".*")] == []
    again = run(
        "inference",
        {"task": "text-classification", "model": result["folder"], "text": QUICK["sentence"]},
        ProgressReporter(),
    )
    assert again["trained"]
    assert again["notes"] == []
    assert {each["label"]: each["probability"] for each in again["labels"]} == pytest.approx(
        {each["label"]: each["probability"] for each in after}, abs=1e-5
    )
    assert (
        run("classify", {"model": result["folder"], "text": QUICK["sentence"]}, ProgressReporter())[
            "labels"
        ][0]["label"]
        == "pro"
    )


@pytest.mark.smoke
def test_seed_determines_model_and_head_training_freezes_encoder(tiny_bert):
    import torch

    one, two = (train(tiny_bert, train="head", epochs=2) for _ in range(2))
    assert one["folder"] == two["folder"]
    assert one["trained_parameters"] < train(tiny_bert, epochs=1)["trained_parameters"] / 10
    before = open_pipeline(
        "text-classification", resolve(tiny_bert, ProgressReporter()), ProgressReporter()
    ).model.base_model
    after = open_pipeline(
        "text-classification", resolve(one["folder"], ProgressReporter()), ProgressReporter()
    ).model.base_model
    assert torch.equal(
        before.embeddings.word_embeddings.weight, after.embeddings.word_embeddings.weight
    )
    assert torch.equal(
        before.encoder.layer[1].output.dense.weight, after.encoder.layer[1].output.dense.weight
    )


def test_heads_drawn_by_chance_disagree_and_are_put_back(tiny_bert):
    import torch

    actual = resolve(tiny_bert, ProgressReporter())
    pipe = open_pipeline("text-classification", actual, ProgressReporter())
    before = {name: each.clone() for name, each in pipe.model.named_parameters()}
    text_rendered = run(
        "classify", {"model": tiny_bert, "text": "what a good film."}, ProgressReporter()
    )
    assert not text_rendered["trained"]
    assert min(text_rendered["votes"].values()) >= 1
    assert sum(text_rendered["votes"].values()) == len(text_rendered["heads"]) == RANDOM_HEADS
    assert text_rendered["notes"][0].startswith("untrained: randomly initialized")
    assert "classifier.weight" in newly_initialized_weights("text-classification", actual)
    assert all(torch.equal(each, before[name]) for name, each in pipe.model.named_parameters())
    assert (
        run("classify", {"model": tiny_bert, "text": "what a good film."}, ProgressReporter())[
            "heads"
        ]
        == text_rendered["heads"]
    )


def test_training_stops_when_it_is_cancelled_and_leaves_nothing(tiny_bert, tmp_path):
    cancelled, shares = threading.Event(), []

    def send(word, *content):
        if word == "row" and content[0]["step"] > 0:
            shares.append(content)
            cancelled.set()

    with pytest.raises(JobCancelled):
        run("train-classifier", {"model": tiny_bert, **QUICK}, ProgressReporter(send, cancelled))
    assert len(shares) == 1
    assert not (tmp_path / "runs").exists()


def test_memory_is_checked_first(tiny_bert, monkeypatch):
    monkeypatch.setattr(classifier, "free_memory", lambda: 30_000_000)
    with pytest.raises(
        UserError, match=r"takes about [\d.]+ MB and 30\.0 MB are free; train the head alone"
    ) as refused:
        train(tiny_bert)
    assert refused.value.retryable
    assert train(tiny_bert, train="head", epochs=1)["memory_estimate"] < 27_000_000


def test_the_memory_estimate_grows_with_the_model(tiny_bert):
    model = open_pipeline(
        "text-classification", resolve(tiny_bert, ProgressReporter()), ProgressReporter()
    ).model
    n = sum(each.numel() for each in model.parameters())
    small, large = (classifier.memory_estimate(model, size, 128) for size in (1, 16))
    assert small > 16 * n
    # the rest is activations, which grow with the batch
    assert large - small == 15 * (small - 16 * n)


def test_a_shared_instance_saves_nothing(tiny_bert, monkeypatch, tmp_path):
    monkeypatch.setattr(classifier, "local_paths_allowed", lambda: False)
    result = train(tiny_bert, epochs=1)
    assert result["folder"] == ""
    assert "stores no trained models of its users" in result["notes"][-1]
    assert not (tmp_path / "runs").exists()


def test_on_a_shared_server_head_training_is_limited(tiny_bert, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    with pytest.raises(UserError, match="give a whole number from 1 to 16"):
        train(tiny_bert, batch_size=17)
    with pytest.raises(
        UserError, match="100 epochs of 48 rows are 300 steps; the maximum is 200: use fewer epochs"
    ):
        train(tiny_bert, epochs=100)
    many = "text,label\n" + "".join(f"text {number},{number % 2}\n" for number in range(1500))
    monkeypatch.setattr(
        classifier, "resolve", lambda *_: pytest.fail("the usual number of epochs is affordable")
    )
    with pytest.raises(pytest.fail.Exception, match="affordable"):
        classifier.train_classifier({"csv": many}, ProgressReporter())


def test_a_fifth_of_each_label_is_held_out_and_no_text_is_on_both_sides():
    rows = read_labeled(CSV + CSV.split("\n", 1)[1])
    assert rows.labels == ["contra", "pro"]
    assert (len(rows.training), len(rows.held_out)) == (48, 12)
    assert [sum(label == place for _, label in rows.held_out) for place in (0, 1)] == [6, 6]
    assert not {text for text, _ in rows.training} & {text for text, _ in rows.held_out}
    assert rows.notes == ["60 duplicate rows were removed"]


@pytest.mark.parametrize(
    ("content", "text_rendered"),
    [
        ("a,b\n1,2\n", "line 1 is 'a,b'; it must name two columns: text,label"),
        ("text,label\nx,1\nx,2\n", "line 3 labels a text '2' that line 2 labels '1'"),
        (
            "text,label\nx\ny,\n,2\n",
            "line 2 has 1 cells, not 2 .*; line 3 has no label; line 4 has no text",
        ),
        ("text,label\n" + "x,\n" * 9, "; line 6 has no label, and 4 more lines"),
        ('text,label\n"x,1\n', "line 2 is not valid CSV"),
        ("text,label\nx,1\ny,1\n", "the CSV has 1 labels; give 2 to 20"),
        ("text,label\nx,1\ny,2\nz,2\n", "the label '1' has only one text"),
        ("text,label\n" + "".join(f"t{n},l{n // 2}\n" for n in range(42)), "the CSV has 21 labels"),
        (
            "text,label\n" + "".join(f"t{n},{n % 2}\n" for n in range(2001)),
            "the CSV has 2,001 rows",
        ),
        ("text,label\nx\x07,1\n", "line 2 contains control characters"),
        ("text,label\n" + "x" * 1001 + ",1\n", "line 2 has a text of 1,001 characters"),
        ("text,label\n" + "x" * 1_000_001, "larger than 1,000 KB"),
    ],
)
def test_faults_of_a_csv_are_reported_with_their_lines(content, text_rendered):
    with pytest.raises(UserError, match=text_rendered):
        read_labeled(content)


@pytest.mark.parametrize(
    ("what", "text_rendered"),
    [
        ({"csv": ""}, "the CSV is missing"),
        ({"csv": None}, "the CSV is missing"),
        ({"train": "body"}, "train is 'body'; choose one of all, head"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"batch_size": 1, "epochs": 100}, "are 4,800 steps; the maximum is 2,000"),
        ({"learning_rate": 0.1, "model": 3}, "model is 3; give the name of a model"),
    ],
)
def test_invalid_requests_get_an_error_message(tiny_bert, what, text_rendered):
    with pytest.raises(UserError, match=text_rendered):
        run("train-classifier", {"model": tiny_bert, **QUICK, **what}, ProgressReporter())
