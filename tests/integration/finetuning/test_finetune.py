"""Fine-tuning of fixtures that reverse three digits, on three to four digits."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from playground.checkpoints.checkpoint import save_checkpoint
from playground.comparison import process
from playground.errors import UserError
from playground.finetuning import job, seq2seq, storage
from playground.finetuning.seq2seq import PretrainedSeq2SeqConfig
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained import resolver
from playground.pretrained.model_names import FINETUNED_PREFIX
from playground.pretrained.pipelines import open_pipeline
from playground.pretrained.prompts import Example, few_shot_prompt, masked_prompt
from playground.pretrained.resolver import resolve
from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.held_out import build_held_out_set
from playground.training.trainer import Trainer
from tests.support.command_runner import run_command

ROOT = Path(__file__).resolve().parents[3]
for_both_models = pytest.mark.parametrize("fixture", ["tiny-gpt2", "tiny-bert"])
# half as many suffice for six seeds of each model, but not on every CPU
STEPS = {"tiny-gpt2": 60, "tiny-bert": 120}


class RecordedMessages:
    """Records the messages of a job; `until` cancels it after this many steps."""

    def __init__(self, until=None):
        self.rows, self.until, self.cancelled = [], until, threading.Event()
        self.reporter = ProgressReporter(self.receive, self.cancelled)

    def receive(self, kind, *content):
        if kind == "row":
            self.rows.append(content[0])
            if content[0].get("step") == self.until and self.until is not None:
                self.cancelled.set()

    @property
    def steps(self):
        return [row for row in self.rows if row["kind"] == "step"]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    yield tmp_path
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checkpoint(small_run, tmp_path_factory):
    """Save an almost untrained checkpoint; only its task is used."""
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    trainer = Trainer(small_run.replace(min_length=3, max_length=4, max_steps=2))
    save_checkpoint(folder, trainer, list(trainer))
    return str(folder)


@pytest.fixture
def finetune_request(checkpoint, tiny_models):
    def create(fixture="tiny-gpt2", **fields):
        return {
            "checkpoint": checkpoint,
            "model": str(tiny_models / fixture),
            "steps": 2,
            "batch_size": 4,
            "n": 4,
            **fields,
        }

    return create


@pytest.fixture
def load_model(tiny_models):
    """Open a fixture as a sequence-to-sequence model for the reversal of digits."""

    def load(fixture, n_symbols=10):
        messages = RecordedMessages()
        actual = resolve(str(tiny_models / fixture), messages.reporter)
        kind = "text-generation" if fixture == "tiny-gpt2" else "fill-mask"
        pipe = open_pipeline(kind, actual, messages.reporter)
        model_class = seq2seq.CausalSeq2Seq if fixture == "tiny-gpt2" else seq2seq.MaskedSeq2Seq
        return model_class(
            pipe.model, pipe.tokenizer, load_task("reverse", n_symbols), fixture
        ), pipe.tokenizer

    return load


@for_both_models
def test_finetuned_model_beats_few_shot_and_joins_the_benchmark(fixture, finetune_request, root):
    messages = RecordedMessages()
    result = job.finetune(
        finetune_request(fixture, steps=STEPS[fixture], batch_size=32, learning_rate=2e-3, n=64),
        messages.reporter,
    )
    assert result["after"]["exact_match"] >= 0.95 > 0.6 > result["before"]["exact_match"]
    losses = [row["loss"] for row in messages.steps[1:]]
    assert sum(losses[-5:]) < 0.1 * sum(losses[:5])
    assert [row["step"] for row in messages.steps] == list(range(STEPS[fixture] + 1))
    assert os.listdir(root / "compared") == [f"{fixture}-reverse-3-4"]

    table = process.run(
        "benchmark",
        finetune_request(
            models=[finetune_request(fixture)["model"], result["model"]], n=12, shots=4, rank=0
        ),
        ProgressReporter(),
    )
    few_shot, after = (
        next(
            row
            for row in table["rows"]
            if row["model"] == name and "sees the other answers" not in row["decoding"]
        )
        for name in (finetune_request(fixture)["model"], result["model"])
    )
    assert after["exact_match"] >= 0.9 > 0.5 >= few_shot["exact_match"]
    assert after["description"].startswith(f"fine-tuned: {STEPS[fixture]} steps on reverse")
    assert "after 0 few-shot examples" in after["decoding"]
    assert "after 4 few-shot examples" in few_shot["decoding"]


@for_both_models
def test_training_inputs_are_the_tokens_of_the_benchmark_prompts(fixture, load_model):
    model, tokenizer = load_model(fixture)
    model.eval()
    causal = fixture == "tiny-gpt2"
    batch = build_held_out_set(model.task, 9, 2, 4).batch
    row_BW, mask_BW = (
        model._row(batch) if causal else model._row(batch.source_BS, batch.labels_BT > EOS)
    )
    for row, mask, source_S, target_T in zip(
        row_BW, mask_BW, batch.source_BS, batch.target_BT, strict=True
    ):
        source, target = (
            tuple(model.task.vocabulary.decode(ids[ids != SOS].tolist()))
            for ids in (source_S, target_T)
        )
        item = Example(source, target)
        text = (
            f"{few_shot_prompt(item, [])} {item.target_text}" + "\n"
            if causal
            else masked_prompt(item, [], tokenizer.mask_token)
        )
        ids = tokenizer(text)["input_ids"]
        inputs = row[mask].tolist()
        assert inputs == (ids[: len(inputs)] if causal else ids)
        # the last token of the longest sequence is a label only
        assert not causal or len(ids) - len(inputs) == int(len(target) == 4)


@for_both_models
def test_generation_is_batch_invariant_and_agrees_with_exact_match(fixture, load_model):
    model, _ = load_model(fixture)
    model.train()
    batch = build_held_out_set(model.task, 24, 2, 5).batch
    batched_BT = model.generate(batch.source_BS, 6)
    assert model.training
    for row, source_S in enumerate(batch.source_BS):
        length = int((source_S != PAD).sum())
        assert torch.equal(model.generate(source_S[None, :length], 6)[0], batched_BT[row])
    correct_B = (batched_BT == batch.labels_BT).all(1)
    assert torch.equal(model.is_exact_match(batch), correct_B)
    assert 0 < int(correct_B.sum()) < len(correct_B)


@for_both_models
def test_attention_rows_sum_to_one_and_exclude_padding_and_future(fixture, load_model):
    model, _ = load_model(fixture)
    batch = build_held_out_set(model.task, 6, 2, 4).batch
    record, axes = model.attention_weights(batch), model.attention_tokens(batch)
    kind = "decoder" if fixture == "tiny-gpt2" else "encoder"
    assert set(axes) == {kind}
    layers = getattr(record, kind)
    assert len(layers) == model.config.n_layers
    queries_BQ, memory_BM = axes[kind]
    for weights_BHQM in layers:
        assert weights_BHQM.shape == (
            6,
            model.config.n_heads,
            queries_BQ.shape[1],
            memory_BM.shape[1],
        )
        valid_BHQM = (queries_BQ != PAD)[:, None, :, None].expand_as(weights_BHQM)
        sums_BHQ = weights_BHQM.sum(-1)
        torch.testing.assert_close(sums_BHQ, torch.ones_like(sums_BHQ))
        padding_BHQM = valid_BHQM & (memory_BM == PAD)[:, None, None, :]
        assert float(weights_BHQM[padding_BHQM].abs().max()) < 1e-6
        if kind == "decoder":
            assert float(weights_BHQM.triu(1)[valid_BHQM].abs().max()) == 0


@pytest.mark.smoke
def test_held_out_examples_contribute_no_loss(load_model):
    model, _ = load_model("tiny-gpt2")
    model.eval()
    model.requires_grad_(False)
    batch = build_held_out_set(model.task, 8, 3, 4).batch
    unweighted = type(batch)(batch.source_BS, batch.target_BT, torch.zeros(8))
    assert float(model.loss(unweighted)) == 0
    weights = torch.tensor([1.0, 0.0] * 4)
    half_weighted = type(batch)(batch.source_BS, batch.target_BT, weights)
    torch.testing.assert_close(model.loss(half_weighted), model.loss(batch.select(weights > 0)))
    model.requires_grad_(True)


def test_losses_depend_on_the_seed_only(finetune_request):
    def train_and_get_losses(seed):
        messages = RecordedMessages()
        job.finetune(finetune_request(steps=4, seed=seed), messages.reporter)
        return [row["loss"] for row in messages.steps[1:]]

    first = train_and_get_losses(0)
    assert train_and_get_losses(0) == first != train_and_get_losses(1)


def test_symbol_without_a_single_token_is_reported(load_model):
    with pytest.raises(UserError, match="tiny-bert has no single token for the symbol A"):
        load_model("tiny-bert", n_symbols=62)  # its tokenizer converts to lower case


def test_sequences_beyond_the_models_positions_are_rejected(load_model):
    model, _ = load_model("tiny-gpt2")
    with pytest.raises(UserError, match="this model has 256 positions"):
        model.ensure_fits_context(200)


def test_cancelling_saves_the_weights_so_far(finetune_request, root, tiny_models):
    messages = RecordedMessages(until=3)
    result = job.finetune(finetune_request(steps=50, learning_rate=1e-3), messages.reporter)
    assert result["cancelled"]
    assert result["steps"] == 3
    assert (
        json.loads((root / "compared" / "tiny-gpt2-reverse-3-4" / "fine-tuned.json").read_text())[
            "steps"
        ]
        == 3
    )
    before, after = (
        open_pipeline(
            "text-generation", resolve(name, ProgressReporter()), ProgressReporter()
        ).model.lm_head.weight
        for name in (str(tiny_models / "tiny-gpt2"), result["model"])
    )
    assert not torch.equal(before, after)


def test_cancelling_before_the_first_step_leaves_nothing(finetune_request, root):
    with pytest.raises(JobCancelled):
        job.finetune(finetune_request(), RecordedMessages(until=0).reporter)
    assert not (root / "compared").exists()


def test_finetuning_beyond_free_memory_is_rejected_before_loading(finetune_request, monkeypatch):
    monkeypatch.setattr(job, "free_memory", lambda: 3_000_000)
    plan = job.plan(finetune_request(batch_size=64), ProgressReporter())
    assert plan["bytes"] == sum(plan["parts"].values()) > plan["free_bytes"] == 3_000_000
    assert not plan["fits"]
    messages = RecordedMessages()
    with pytest.raises(UserError, match=r"takes about [\d.]+ MB .* and 3\.0 MB are free") as error:
        job.finetune(finetune_request(batch_size=64), messages.reporter)
    assert error.value.retryable
    assert messages.rows == []


def test_memory_plan_scales_with_batch_and_has_16_bytes_per_weight(finetune_request, tiny_models):
    small, large = (
        job.plan(finetune_request(batch_size=size), ProgressReporter())["parts"] for size in (4, 8)
    )
    assert large["activations"] == 2 * small["activations"]
    parameters = resolve(str(tiny_models / "tiny-gpt2"), ProgressReporter()).parameters
    assert sum(value for name, value in small.items() if name != "activations") == 16 * parameters


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_reported_and_leaves_no_partial_file(
    finetune_request, root, monkeypatch, error
):
    job.finetune(finetune_request(), ProgressReporter())
    folder = root / "compared" / "tiny-gpt2-reverse-3-4"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def raise_error(*_, **__):
        raise error

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", raise_error)
    with pytest.raises(
        UserError, match=r"could not be saved \(No space left on device.*Free some space"
    ):
        job.finetune(finetune_request(steps=3), ProgressReporter())
    assert os.listdir(root / "compared") == [folder.name]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_full_disk_is_rejected_before_training(finetune_request, monkeypatch):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    messages = RecordedMessages()
    with pytest.raises(UserError, match="are free on this disk"):
        job.finetune(finetune_request(), messages.reporter)
    assert messages.rows == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "steps is 0; give a whole number from 1"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": "1"}, "learning_rate is '1'; give a number"),
        ({"batch_size": True}, "batch_size is True"),
        ({"model": ""}, "give a model to fine-tune"),
        ({"model": "tuned:../../etc"}, "fine-tune the model again"),
        ({"model": "tuned:nothing"}, "fine-tune the model again"),
        ({"checkpoint": None}, "give a checkpoint, whose task is used"),
    ],
)
def test_an_unusable_model_is_rejected_with_a_message(finetune_request, fields, message):
    with pytest.raises(UserError, match=message):
        process.run("finetune", finetune_request(**fields), ProgressReporter())


def test_too_large_a_learning_rate_is_reported_and_nothing_is_saved(
    finetune_request, root, monkeypatch
):
    monkeypatch.setattr(
        seq2seq.CausalSeq2Seq,
        "_loss",
        lambda *_: torch.tensor(float("nan"), requires_grad=True),
    )
    with pytest.raises(UserError, match="try again with a learning rate below"):
        job.finetune(finetune_request(), ProgressReporter())
    assert not (root / "compared").exists()


def test_hosted_finetuning_limits_steps_and_evicts_the_oldest_model(
    finetune_request, root, monkeypatch, tiny_models
):
    monkeypatch.setattr(
        resolver,
        "cached_snapshot",
        lambda name: tiny_models / "tiny-gpt2" if name == "tiny-gpt2" else None,
    )
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    monkeypatch.setattr(storage, "SHARED_MAX_MODELS", 2)
    with pytest.raises(UserError, match="steps is 201; give a whole number from 1 to 200"):
        job.finetune(finetune_request(model="tiny-gpt2", steps=201), ProgressReporter())
    names = [
        job.finetune(finetune_request(model="tiny-gpt2", steps=1), ProgressReporter())["model"]
        for _ in range(3)
    ]
    assert len(set(names)) == 3
    assert {FINETUNED_PREFIX + name for name in os.listdir(root / "compared")} == set(names[1:])
    assert resolve(names[2], ProgressReporter()).location == "directory"
    with pytest.raises(UserError):
        resolve(
            str(root / "compared" / names[2].removeprefix(FINETUNED_PREFIX)),
            ProgressReporter(),
        )


def test_the_command_line_does_not_replace_a_model_without_a_flag(finetune_request, tmp_path):
    out = tmp_path / "model"
    arguments = [
        "finetune",
        finetune_request()["model"],
        finetune_request()["checkpoint"],
        "--steps",
        "2",
        "--n",
        "4",
        "--out",
        str(out),
        "--json",
    ]
    command = [sys.executable, "-W", "error", "-m", "playground", *arguments]
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout.splitlines()[-1])
    assert result["model"] == str(out)
    assert result["steps"] == 2
    assert resolve(str(out), ProgressReporter()).parameters == result["parameters"]
    second = run_command(*arguments)
    assert second.returncode == 2
    assert (
        "already holds a fine-tuned model; choose another folder, or add --overwrite"
        in second.stderr
    )


def test_eviction_takes_own_models_first_and_others_after_an_hour(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "SHARED_MAX_MODELS", 3)

    def save_model(name, owner, minutes):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fine-tuned.json").write_text(json.dumps({"owner": owner}))
        os.utime(tmp_path / name, (time.time() - 60 * minutes,) * 2)

    def names_to_evict(owner):
        return [path.name for path in storage.models_to_evict(tmp_path, owner)]

    save_model("old-of-ben", "ben", 50)
    save_model("old-of-ada", "ada", 40)
    assert names_to_evict("ada") == []
    save_model("new-of-ada", "ada", 10)
    assert names_to_evict("ada") == ["old-of-ada"]
    assert names_to_evict("ben") == ["old-of-ben"]
    with pytest.raises(
        UserError, match=r"of other users are stored here.* try again in about 10 minutes"
    ):
        names_to_evict("cy")
    os.utime(tmp_path / "old-of-ben", (time.time() - 3700,) * 2)
    assert names_to_evict("cy") == ["old-of-ben"]
    assert names_to_evict("ada") == ["old-of-ada"]


def test_evaluation_batches_are_bounded_by_the_vocabulary():
    small, large = (
        PretrainedSeq2SeqConfig(
            d_model=8,
            n_heads=1,
            n_layers=1,
            d_ff=8,
            source_vocab_size=size,
            target_vocab_size=size,
            max_positions=100,
            prompt_tokens=10,
        )
        for size in (100, 50_000)
    )
    assert small.sequence_length(10, 10) == large.sequence_length(10, 10) == 30
    assert small.max_batch_size(30) == 512
    assert large.max_batch_size(30) == 16_000_000 // (30 * 50_000)
