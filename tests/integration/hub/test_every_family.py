"""Every architecture is published and downloaded: the code of its card loads it."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
import transformers

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import load_model, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.hub.export import build_package, checkpoint_from_package
from playground.hub.repo_ids import PACKAGE_FILES
from playground.hub.task_runner import HubTask
from playground.jobs.process import warm_up
from playground.tasks.held_out import build_held_out_set
from playground.training.trainer import Trainer
from tests.support.auto_classes import register
from tests.support.hub_tasks import run_hub_task
from tests.support.small_configs import small_config

CODELESS = {"bert", "gpt2", "bart"}  # architectures with classes in transformers
STEPS = 50
PUBLISHED = {
    family: (family if family != "recurrent" else "lstm-additive", {}) for family in ARCHITECTURES
}
VARIANTS = PUBLISHED | {
    "gru-none": ("gru-none", {}),
    "rnn-dot": ("rnn-dot", {}),
    "transformer-rope": (
        "transformer",
        {"position_type": "rope", "norm_type": "rms", "activation": "swiglu", "n_kv_heads": 1},
    ),
    "encoder-only-sinusoidal": ("encoder-only", {"position_type": "sinusoidal"}),
    "decoder-only-sinusoidal-tied": (
        "decoder-only",
        {"position_type": "sinusoidal", "tie_output_embeddings": True},
    ),
    "decoder-only-rope": ("decoder-only", {"position_type": "rope"}),
}
# Runs after the code of the card: repeats its last lines for every text of stdin, and prints the
# predictions and the modules that were loaded from a repository.
PREDICT_ALL = """
import json, sys
predictions = []
for text in json.load(sys.stdin):
    inputs = tokenizer(text, return_tensors="pt")
    printed = []
    print_, print = print, printed.append
{lines}
    print = print_
    predictions.append(printed[0])
remote = sorted(name for name in sys.modules if name.startswith("transformers_modules."))
print(json.dumps([predictions, remote]))
"""


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up().join()


def train_checkpoint(folder, name, changes):
    """Train an architecture for some steps; return its checkpoint."""
    trainer = Trainer(small_config(name, **changes))
    metrics = [trainer.train_step() for _ in range(STEPS)]
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(100))
    return folder


@pytest.fixture(scope="module", params=PUBLISHED)
def published(request, hub, tmp_path_factory):
    """Publish one architecture; return its checkpoint and its repository."""
    folder = train_checkpoint(
        tmp_path_factory.mktemp("checkpoint") / "0", *PUBLISHED[request.param]
    )
    repo = f"ada/{request.param}"
    run_to_end(HubTask("push", repo, hub.ADA, hub.url, checkpoint=str(folder)))
    return folder, repo


def run_to_end(hub_task):
    job = run_hub_task(hub_task)
    assert job.status == "done", job.message
    return job.result


def held_out_predictions(folder):
    """Return held-out sources and the predictions of the checkpoint, as `predict` prints them."""
    manifest, family = load_model(folder)
    task = manifest.config.task.load()
    batch = build_held_out_set(task, 30, 1, manifest.config.task.max_length).batch
    texts, predictions = [], []
    for row in batch.source_BS:
        tokens = row[row != 0][None]
        texts.append(" ".join(task.vocabulary.decode(tokens[0].tolist())))
        predictions.append(
            " ".join(
                task.vocabulary.decode(
                    family.generate(tokens, family.config.max_positions)[0].tolist()
                )
            )
        )
    return texts, predictions


def test_code_of_the_card_gives_the_predictions_of_the_checkpoint(hub, published, tmp_path):
    folder, repo = published
    texts, predictions = held_out_predictions(folder)
    assert len(texts) > 20
    card = hub.files(repo)["README.md"].decode()
    snippet = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]
    lines = re.search(r"inputs = .*\n((?:.*\n)+)", snippet).group(1)
    program = snippet + PREDICT_ALL.format(
        lines="".join(f"    {line}\n" for line in lines.splitlines())
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))
    }
    completed = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        env=environment
        | hub.environment(tmp_path / "home", HF_MODULES_CACHE=str(tmp_path / "modules")),
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    first_line, *_, last_line = completed.stdout.splitlines()
    actual, modules = json.loads(last_line)
    assert actual == predictions
    documented = re.search(r"print\(.*\)  # (.+)", snippet)
    if documented:
        assert first_line == documented.group(1)
    assert bool(modules) == ("trust_remote_code=True" in snippet)
    assert bool(modules) == (
        json.loads((folder / "config.json").read_text())["architecture"] not in CODELESS
    )
    for warning in ("MISSING", "UNEXPECTED", "newly initialized"):
        assert warning not in completed.stderr


def test_pulled_checkpoint_is_bit_identical(hub, published, tmp_path):
    folder, repo = published
    run_to_end(HubTask("pull", repo, endpoint=hub.url, destination=str(tmp_path / "in")))
    assert {path.name: path.read_bytes() for path in (tmp_path / "in").iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_every_published_file_is_a_known_package_file(hub, published):
    _, repo = published
    assert set(hub.files(repo)) - {"LICENSE"} <= PACKAGE_FILES


def test_card_reports_the_lines_of_executed_code(hub, published):
    files = hub.files(published[1])
    code = [data.decode() for name, data in files.items() if name.endswith(".py")]
    card = files["README.md"].decode()
    assert ("LICENSE" in files) == bool(code)
    if code:
        assert (
            f": {sum(text.count(chr(10)) for text in code):,} lines in {len(code)} files that "
            "implement" in card
        )
    else:
        assert "no code of this repository is run" in card


@pytest.mark.parametrize("variant", VARIANTS)
def test_batched_predictions_equal_single_predictions(variant, tmp_path):
    """Rows of different lengths are padded, which must not change an output."""
    from playground.hub.formats import package_format

    folder = train_checkpoint(tmp_path / "checkpoint", *VARIANTS[variant])
    texts, predictions = held_out_predictions(folder)
    form = package_format(json.loads((folder / "config.json").read_text())["architecture"])
    if form.has_code:
        register(form)
    build_package(folder, tmp_path / "package")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "package")
    model = getattr(transformers, form.auto_class).from_pretrained(
        tmp_path / "package", trust_remote_code=False, use_safetensors=True
    )
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    if form.auto_class == "AutoModelForMaskedLM":
        with torch.no_grad():
            tokens = model(**inputs).logits.argmax(-1)
        rows = (
            [row[kind == 1] for row, kind in zip(tokens, inputs["token_type_ids"], strict=True)]
            if form.needs_mask_tokens
            else tokens
        )
        actual = [
            text.split(tokenizer.eos_token)[0].strip() for text in tokenizer.batch_decode(rows)
        ]
    else:
        first = inputs["input_ids"].shape[1] if form.auto_class == "AutoModelForCausalLM" else 0
        actual = tokenizer.batch_decode(
            model.generate(**inputs)[:, first:], skip_special_tokens=True
        )
    assert actual == predictions


@pytest.mark.parametrize("harm", ["cut off", "another number", "names of a checkpoint", "no file"])
def test_damaged_package_of_a_transformers_class_leaves_no_checkpoint(tmp_path, harm):
    """Damage a package whose weights have other names than in a checkpoint."""
    folder = train_checkpoint(tmp_path / "checkpoint", *VARIANTS["gpt2"])
    build_package(folder, tmp_path / "package")
    weights = tmp_path / "package" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    if harm == "cut off":
        weights.write_bytes(data[:-4])
    elif harm == "another number":
        data[-1] ^= 1
        weights.write_bytes(data)
    elif harm == "names of a checkpoint":
        weights.write_bytes((folder / "model.safetensors").read_bytes())
    else:
        weights.unlink()
    with pytest.raises(CheckpointError):
        checkpoint_from_package(tmp_path / "package", tmp_path / "back")
    assert not (tmp_path / "back").exists()
