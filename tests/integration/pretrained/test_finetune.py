"""Fine-tuning of fixtures that reverse three digits, on three to four digits."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch
from safetensors import SafetensorError

from playground.__main__ import run
from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained import jobs
from playground.pretrained.finetuning import job, seq2seq
from playground.pretrained.loading import pipelines, resolver
from playground.pretrained.loading.model_names import FINETUNED_PREFIX
from playground.pretrained.loading.pipelines import open_pipeline
from playground.pretrained.loading.resolver import resolve
from playground.pretrained.prompts import Example, few_shot_prompt, masked_prompt
from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.held_out import build_held_out_set
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.command_runner import run_in_interpreter

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
        usual = {"checkpoint": checkpoint, "model": str(tiny_models / fixture)}
        return usual | {"steps": 2, "batch_size": 4, "n": 4} | fields

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
        task = load_task("reverse", n_symbols)
        return model_class(pipe.model, pipe.tokenizer, task, fixture), pipe.tokenizer

    return load


@pytest.fixture(scope="module")
def tuned(checkpoint, tiny_models, tmp_path_factory):
    """Return the messages, the result and the folder of a fine-tuning that learns the task."""
    results = {}

    def tune(fixture):
        if fixture not in results:
            messages, folder = RecordedMessages(), tmp_path_factory.mktemp("tuned") / fixture
            request = {"checkpoint": checkpoint, "model": str(tiny_models / fixture), "n": 64}
            request |= {"steps": STEPS[fixture], "batch_size": 32, "learning_rate": 2e-3}
            result = job.finetune(request | {"destination": str(folder)}, messages.reporter)
            results[fixture] = messages, result
        return results[fixture]

    return tune


@for_both_models
def test_fine_tuning_learns_the_task(fixture, tuned):
    messages, result = tuned(fixture)
    assert result["after"]["exact_match"] >= 0.95 > 0.6 > result["before"]["exact_match"]
    losses = [row["loss"] for row in messages.steps[1:]]
    assert sum(losses[-5:]) < 0.1 * sum(losses[:5])
    assert [row["step"] for row in messages.steps] == list(range(STEPS[fixture] + 1))


def test_a_fine_tuned_model_joins_the_benchmark(tuned, finetune_request):
    original, model = finetune_request()["model"], tuned("tiny-gpt2")[1]["model"]
    request = finetune_request(models=[original, model], n=12, shots=4)
    table = jobs.run("benchmark", request, ProgressReporter())
    few_shot, after = (
        next(row for row in table["rows"] if row["model"] == name) for name in (original, model)
    )
    assert after["exact_match"] >= 0.9 > 0.5 >= few_shot["exact_match"]
    assert after["description"].startswith("fine-tuned: 60 steps on reverse")
    assert "after 0 few-shot examples" in after["decoding"]
    assert "after 4 few-shot examples" in few_shot["decoding"]


@for_both_models
def test_training_inputs_are_the_tokens_of_the_benchmark_prompts(fixture, load_model):
    model, tokenizer = load_model(fixture)
    model.eval()
    causal = fixture == "tiny-gpt2"
    batch = build_held_out_set(model.task, 9, 2, 4).batch
    row_BW, mask_BW = (
        model._row(batch.source_BS, *model._labels(batch))
        if causal
        else model._row(batch.source_BS, batch.labels_BT > EOS)
    )
    rows = zip(row_BW, mask_BW, batch.source_BS, batch.target_BT, strict=True)
    for row, mask, *pair in rows:
        source, target = (
            tuple(model.task.vocabulary.decode(ids[ids != SOS].tolist())) for ids in pair
        )
        item = Example(source, target)
        prompt = f"{few_shot_prompt(item, [])} {item.target_text}\n"
        text = prompt if causal else masked_prompt(item, [], tokenizer.mask_token)
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


def test_cancelling_saves_the_weights_so_far(finetune_request, root, tiny_models):
    messages = RecordedMessages(until=3)
    result = job.finetune(finetune_request(steps=50, learning_rate=1e-3), messages.reporter)
    assert (result["cancelled"], result["steps"]) == (True, 3)
    saved = root / "compared" / "tiny-gpt2-reverse-3-4" / "fine-tuned.json"
    assert json.loads(saved.read_text())["steps"] == 3
    names = str(tiny_models / "tiny-gpt2"), result["model"]
    models = [resolve(name, ProgressReporter()) for name in names]
    pipes = [open_pipeline("text-generation", each, ProgressReporter()) for each in models]
    assert not torch.equal(*(pipe.model.lm_head.weight for pipe in pipes))


def test_cancelling_before_the_first_step_leaves_nothing(finetune_request, root):
    with pytest.raises(JobCancelled):
        job.finetune(finetune_request(), RecordedMessages(until=0).reporter)
    assert not (root / "compared").exists()


SERVER = """
if __name__ == "__main__":
    import json, sys, time
    from playground.pretrained.jobs import PretrainedJobs
    jobs = PretrainedJobs()
    job = jobs.submit("finetune", json.loads(sys.argv[1]))
    while len(job.rows) < 5:
        time.sleep(0.05)
    print("learning", flush=True)
    sys.stdin.read()
"""


def test_a_killed_server_leaves_the_weights_so_far(finetune_request, root, tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "server.py")]
    command.append(json.dumps(finetune_request(steps=5000)))
    with subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout.readline() == "learning\n"
        server.kill()
    (saved,) = wait_for(
        lambda: list((root / "compared").glob("*/fine-tuned.json")), 100, "what it had learned"
    )
    assert 0 < json.loads(saved.read_text())["steps"] < 5000


def test_finetuning_beyond_free_memory_is_rejected_before_loading(finetune_request, monkeypatch):
    for module in (job, pipelines):
        monkeypatch.setattr(module, "free_memory", lambda: 3_000_000)
    plan = job.plan(finetune_request(batch_size=64), ProgressReporter())
    assert plan["bytes"] == sum(plan["parts"].values()) > plan["free_bytes"] == 3_000_000
    assert not plan["fits"]
    messages = RecordedMessages()
    with pytest.raises(UserError, match=r"takes about [\d.]+ MB .* and 3\.0 MB are free") as error:
        job.finetune(finetune_request(batch_size=64), messages.reporter)
    assert error.value.retryable
    assert messages.rows == []


def test_plan_scales_with_the_batch_and_has_16_bytes_per_weight(finetune_request, tiny_models):
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
    message = r"could not be saved \(No space left on device.*Free some space"
    with pytest.raises(UserError, match=message):
        job.finetune(finetune_request(steps=3), ProgressReporter())
    assert os.listdir(root / "compared") == [folder.name]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_full_disk_is_rejected_before_training(finetune_request, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    messages = RecordedMessages()
    with pytest.raises(UserError, match="are free on this disk"):
        job.finetune(finetune_request(), messages.reporter)
    assert messages.rows == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "steps is 0; give a whole number from 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"model": ""}, "give a model to fine-tune"),
        ({"model": "tuned:../../etc"}, "fine-tune the model again"),
        ({"checkpoint": None}, "give a checkpoint, whose task is used"),
    ],
)
def test_an_unusable_model_is_rejected_with_a_message(finetune_request, fields, message):
    with pytest.raises(UserError, match=message):
        jobs.run("finetune", finetune_request(**fields), ProgressReporter())


def test_too_large_a_learning_rate_is_reported_and_nothing_is_saved(
    finetune_request, root, monkeypatch
):
    nan = torch.tensor(float("nan"), requires_grad=True)
    monkeypatch.setattr(seq2seq.CausalSeq2Seq, "loss", lambda *_: nan)
    with pytest.raises(UserError, match="try again with a learning rate below"):
        job.finetune(finetune_request(), ProgressReporter())
    assert not (root / "compared").exists()


def test_hosted_finetuning_limits_steps_and_evicts_the_oldest_model(
    finetune_request, root, monkeypatch, tiny_models
):
    cached = {"tiny-gpt2": tiny_models / "tiny-gpt2"}
    monkeypatch.setattr(resolver, "cached_snapshot", cached.get)
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    monkeypatch.setenv("PLAYGROUND_LIMITS", "fine-tuned-models.total=2")
    with pytest.raises(UserError, match="steps is 201; give a whole number from 1 to 200"):
        job.finetune(finetune_request(model="tiny-gpt2", steps=201), ProgressReporter())
    names = [
        job.finetune(finetune_request(model="tiny-gpt2", steps=1), ProgressReporter())["model"]
        for _ in range(3)
    ]
    assert len(set(names)) == 3
    assert {FINETUNED_PREFIX + name for name in os.listdir(root / "compared")} == set(names[1:])
    assert resolve(names[2], ProgressReporter()).location == "directory"
    folder = root / "compared" / names[2].removeprefix(FINETUNED_PREFIX)
    with pytest.raises(UserError):
        resolve(str(folder), ProgressReporter())


def test_the_command_line_does_not_replace_a_model_without_a_flag(
    finetune_request, tmp_path, capsys
):
    request, out = finetune_request(), tmp_path / "model"
    arguments = ["finetune", request["model"], request["checkpoint"], "--steps", "2", "--n", "4"]
    arguments += ["--out", str(out), "--json"]
    first = run_in_interpreter(*arguments)
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout.splitlines()[-1])
    assert (result["model"], result["steps"]) == (str(out), 2)
    assert resolve(str(out), ProgressReporter()).parameters == result["parameters"]
    with pytest.raises(SystemExit) as end:
        run(arguments)
    assert end.value.code == 2
    message = "already holds a fine-tuned model; choose another folder, or add --overwrite"
    assert message in capsys.readouterr().err
