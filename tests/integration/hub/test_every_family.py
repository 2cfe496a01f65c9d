"""The package of every architecture: the code of its card loads it, and it is restored."""

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest
import torch
import transformers

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import load_model, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.datasets.sources import read_text
from playground.datasets.storage import store
from playground.hub.export import build_package, checkpoint_from_package
from playground.hub.formats import package_format
from playground.hub.model_card import write_card
from playground.hub.repo_ids import PACKAGE_FILES
from playground.runs.replay import REPLAY_FILE
from playground.tasks.held_out import build_held_out_set
from playground.tasks.vocabulary import normalize
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.auto_classes import register
from tests.support.small_configs import small_config

CODELESS = {"bert", "gpt2", "bart"}  # architectures with classes in transformers
STEPS = 30
PUBLISHED = ("bundled", "dataset", *ARCHITECTURES)
# Tokens that look like special tokens together, or that have other spellings, or none to see.
CHARACTERS = normalize(
    "<EOS>PAD, \u00e9\u0301\u0915\u094d\u200c\u200d\u200f\u00ad\ufe0f\U0001fae8\ue000\U0010ffff"
)
VARIANTS = {
    family: (family if family != "recurrent" else "lstm-additive", {}) for family in ARCHITECTURES
} | {
    "rnn-dot": ("rnn-dot", {}),
    "decoder-only-sinusoidal-tied": (
        "decoder-only",
        {"position_type": "sinusoidal", "tie_output_embeddings": True},
    ),
    "decoder-only-rope": ("decoder-only", {"position_type": "rope"}),
}
# Runs after the code of the card: repeats its last lines for every text, and prints the
# predictions and the modules that were loaded from a repository.
PREDICT_ALL = """
import json, sys
predictions = []
for text in texts:
    inputs = tokenizer(text, return_tensors="pt")
    printed = []
    print_, print = print, printed.append
{lines}
    print = print_
    predictions.append(printed[0])
remote = sorted(name for name in sys.modules if name.startswith("transformers_modules."))
print(json.dumps([predictions, remote]))
"""
# Imports once, and runs each program of stdin in a fork, with files for its output.
RUN_EACH = """
import importlib.util, json, os, sys, traceback
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

assert importlib.util.find_spec("playground") is None

for name, program, texts in json.load(sys.stdin):
    process = os.fork()
    if process:
        os.waitpid(process, 0)
        open(f"{name}.done", "w").close()
        continue
    for stream, kind in ((sys.stdout, "out"), (sys.stderr, "err")):
        os.dup2(os.open(f"{name}.{kind}", os.O_WRONLY | os.O_CREAT), stream.fileno())
    try:
        exec(program, {"texts": texts})
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""


@pytest.fixture(scope="module")
def stored_datasets(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path_factory.mktemp("stored")))
        yield


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, stored_datasets):
    """Return a function that returns the checkpoint of a variant after some steps."""

    def dataset_config():
        symbols = [*dict.fromkeys(CHARACTERS.replace(" ", ""))]
        pairs = [(a + b + c, c + b) for a in symbols for b in symbols for c in symbols]
        pairs = [pair for pair in pairs if tuple(map(normalize, pair)) == pair]
        dataset = read_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        store(dataset)
        sizes = {"d_model": 32, "n_heads": 2, "d_ff": 32, "n_layers": 1}
        return RunConfig.from_flat(dataset.task_settings() | sizes)

    @cache
    def train(name):
        family, changes = VARIANTS.get(name, (name, {}))
        config = dataset_config() if name == "dataset" else small_config(family, **changes)
        trainer = Trainer(config)
        metrics = [trainer.train_step() for _ in range(STEPS)]
        folder = tmp_path_factory.mktemp("checkpoint") / "0"
        save_checkpoint(folder, trainer, metrics, trainer.evaluate(100))
        return folder

    return lambda name: ROOT / "checkpoints" / "reverse" if name == "bundled" else train(name)


@pytest.fixture(scope="module")
def packages(checkpoints, tmp_path_factory):
    """The package of each architecture, with its card."""
    folders = {name: tmp_path_factory.mktemp("package") for name in PUBLISHED}
    with pytest.MonkeyPatch.context() as patch:
        for module in ("card_measurements", "model_card"):
            patch.setattr(f"playground.hub.{module}.render", lambda *_: b"")  # draw no pictures
        for name, folder in folders.items():
            build_package(checkpoints(name), folder)
            write_card(folder, checkpoints(name), repo=f"ada/{name}")
    return folders


@cache
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


def snippet(package):
    """Return the code of a card."""
    card = (package / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]


@pytest.fixture(scope="module")
def outputs(hub, checkpoints, packages, tmp_path_factory):
    """Run the code of one card after the other without this project, for the folder `outputs`."""
    folder, programs = tmp_path_factory.mktemp("outputs"), []
    for name, package in packages.items():
        hub.put(f"ada/{name}", {path.name: path.read_bytes() for path in package.iterdir()})
        lines = re.search(r"inputs = .*\n((?:.*\n)+)", snippet(package)).group(1)
        rest = "".join(f"    {line}\n" for line in lines.splitlines())
        texts, _ = held_out_predictions(checkpoints(name))
        programs.append([name, snippet(package) + PREDICT_ALL.format(lines=rest), texts])
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))
    }
    variables = {"HF_MODULES_CACHE": str(folder / "modules"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-I", "-c", RUN_EACH],
        cwd=folder,
        env=environment | hub.environment(folder / "home", **variables),
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write(json.dumps(programs))
        process.stdin.close()
        yield folder
        process.kill()


@pytest.mark.parametrize("name", PUBLISHED)
def test_code_of_the_card_gives_the_predictions_of_the_checkpoint(
    checkpoints, packages, outputs, name
):
    texts, predictions = held_out_predictions(checkpoints(name))
    assert len(texts) > 20
    wait_for((outputs / f"{name}.done").exists, 200, f"the code of the card of {name}")
    errors = (outputs / f"{name}.err").read_text()
    assert "Traceback" not in errors, errors
    first_line, *_, last_line = (outputs / f"{name}.out").read_text().splitlines()
    actual, modules = json.loads(last_line)
    assert actual == predictions
    documented = re.search(r"print\(.*\)  # (.+)", snippet(packages[name]))
    assert documented or name != "bundled"  # a model that has learned its task
    if documented:
        assert first_line == documented.group(1)
    assert bool(modules) == ("trust_remote_code=True" in snippet(packages[name]))
    assert bool(modules) == (name not in CODELESS)
    for warning in ("MISSING", "UNEXPECTED", "newly initialized"):
        assert warning not in errors


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_package_is_restored_bit_for_bit(checkpoints, packages, tmp_path, name):
    checkpoint_from_package(packages[name], tmp_path / "in")
    assert {path.name: path.read_bytes() for path in (tmp_path / "in").iterdir()} == {
        path.name: path.read_bytes()
        for path in checkpoints(name).iterdir()
        if path.name != REPLAY_FILE
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_package_has_known_files_and_its_card_names_its_code(packages, name):
    files = {path.name: path.read_bytes() for path in packages[name].iterdir()}
    assert set(files) - {"LICENSE"} <= PACKAGE_FILES
    code = [name for name in files if name.endswith(".py")]
    assert ("LICENSE" in files) == bool(code)
    expected = "runs the Python files of this" if code else "no code of this repository is run"
    assert expected in files["README.md"].decode()


@pytest.mark.parametrize("variant", VARIANTS)
def test_batched_predictions_equal_single_predictions(checkpoints, packages, variant, tmp_path):
    """Rows of different lengths are padded, which must not change an output."""
    folder = checkpoints(variant)
    texts, predictions = held_out_predictions(folder)
    form = package_format(json.loads((folder / "config.json").read_text())["architecture"])
    if form.has_code:
        register(form)
    if variant in packages:
        package = packages[variant]
    else:
        package = tmp_path / "package"
        package.mkdir()
        build_package(folder, package)
    tokenizer = transformers.AutoTokenizer.from_pretrained(package)
    model = getattr(transformers, form.auto_class).from_pretrained(
        package, trust_remote_code=False, use_safetensors=True
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


@pytest.mark.parametrize("harm", ["another number", "names of a checkpoint"])
def test_damaged_package_of_a_transformers_class_leaves_no_checkpoint(checkpoints, tmp_path, harm):
    """Damage a package whose weights have other names than in a checkpoint."""
    folder = checkpoints("gpt2")
    (tmp_path / "package").mkdir()
    build_package(folder, tmp_path / "package")
    weights = tmp_path / "package" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    if harm == "names of a checkpoint":
        data = (folder / "model.safetensors").read_bytes()
    weights.write_bytes(data)
    with pytest.raises(CheckpointError):
        checkpoint_from_package(tmp_path / "package", tmp_path / "back")
    assert not (tmp_path / "back").exists()
