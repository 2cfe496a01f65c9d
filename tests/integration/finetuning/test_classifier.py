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
def checkpoints_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))


def train(name, messages=None, **fields):
    return run(
        "train-classifier",
        {"model": name, **QUICK, **fields},
        ProgressReporter(lambda *message: (messages or []).append(message)),
    )


@pytest.mark.parametrize("kind", ["tiny_bert", "tiny_gpt2"])
def test_a_trained_classification_head_is_saved_as_a_model(kind, request, tmp_path):
    name, messages = request.getfixturevalue(kind), [("", "")]
    result = train(name, messages)
    rows = [content[0] for message_kind, *content in messages if message_kind == "row"]
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
    inference = run(
        "inference",
        {"task": "text-classification", "model": result["folder"], "text": QUICK["sentence"]},
        ProgressReporter(),
    )
    assert inference["trained"]
    assert inference["notes"] == []
    assert {entry["label"]: entry["probability"] for entry in inference["labels"]} == pytest.approx(
        {entry["label"]: entry["probability"] for entry in after}, abs=1e-5
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


def test_random_heads_disagree_and_the_model_is_restored(tiny_bert):
    import torch

    actual = resolve(tiny_bert, ProgressReporter())
    pipe = open_pipeline("text-classification", actual, ProgressReporter())
    before = {name: parameter.clone() for name, parameter in pipe.model.named_parameters()}
    result = run("classify", {"model": tiny_bert, "text": "what a good film."}, ProgressReporter())
    assert not result["trained"]
    assert min(result["votes"].values()) >= 1
    assert sum(result["votes"].values()) == len(result["heads"]) == RANDOM_HEADS
    assert result["notes"][0].startswith("untrained: randomly initialized")
    assert "classifier.weight" in newly_initialized_weights("text-classification", actual)
    assert all(
        torch.equal(parameter, before[name]) for name, parameter in pipe.model.named_parameters()
    )
    assert (
        run("classify", {"model": tiny_bert, "text": "what a good film."}, ProgressReporter())[
            "heads"
        ]
        == result["heads"]
    )


def test_cancelled_training_stops_and_saves_nothing(tiny_bert, tmp_path):
    cancelled, step_rows = threading.Event(), []

    def send(message_kind, *content):
        if message_kind == "row" and content[0]["step"] > 0:
            step_rows.append(content)
            cancelled.set()

    with pytest.raises(JobCancelled):
        run("train-classifier", {"model": tiny_bert, **QUICK}, ProgressReporter(send, cancelled))
    assert len(step_rows) == 1
    assert not (tmp_path / "runs").exists()


def test_memory_is_checked_first(tiny_bert, monkeypatch):
    monkeypatch.setattr(classifier, "free_memory", lambda: 30_000_000)
    with pytest.raises(
        UserError, match=r"takes about [\d.]+ MB and 30\.0 MB are free; train the head alone"
    ) as error:
        train(tiny_bert)
    assert error.value.retryable
    assert train(tiny_bert, train="head", epochs=1)["memory_estimate"] < 27_000_000


def test_the_memory_estimate_grows_with_the_model(tiny_bert):
    model = open_pipeline(
        "text-classification", resolve(tiny_bert, ProgressReporter()), ProgressReporter()
    ).model
    n = sum(parameter.numel() for parameter in model.parameters())
    small, large = (classifier.memory_estimate(model, size, 128) for size in (1, 16))
    assert small > 16 * n
    # activations grow with the batch size
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
    long_csv = "text,label\n" + "".join(f"text {number},{number % 2}\n" for number in range(1500))
    monkeypatch.setattr(
        classifier,
        "resolve",
        lambda *_: pytest.fail("the default number of epochs is within the limit"),
    )
    with pytest.raises(pytest.fail.Exception, match="within the limit"):
        classifier.train_classifier({"csv": long_csv}, ProgressReporter())


def test_a_fifth_of_each_label_is_held_out_without_duplicates():
    rows = read_labeled(CSV + CSV.split("\n", 1)[1])
    assert rows.labels == ["contra", "pro"]
    assert (len(rows.training), len(rows.held_out)) == (48, 12)
    assert [sum(label == index for _, label in rows.held_out) for index in (0, 1)] == [6, 6]
    assert not {text for text, _ in rows.training} & {text for text, _ in rows.held_out}
    assert rows.notes == ["60 duplicate rows were removed"]


@pytest.mark.parametrize(
    ("content", "message"),
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
def test_faults_of_a_csv_are_reported_with_their_lines(content, message):
    with pytest.raises(UserError, match=message):
        read_labeled(content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"csv": ""}, "the CSV is missing"),
        ({"csv": None}, "the CSV is missing"),
        ({"train": "body"}, "train is 'body'; choose one of all, head"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"batch_size": 1, "epochs": 100}, "are 4,800 steps; the maximum is 2,000"),
        ({"learning_rate": 0.1, "model": 3}, "model is 3; give the name of a model"),
    ],
)
def test_invalid_requests_get_an_error_message(tiny_bert, fields, message):
    with pytest.raises(UserError, match=message):
        run("train-classifier", {"model": tiny_bert, **QUICK, **fields}, ProgressReporter())
