"""Repositories with code: pickles, auto_map and unknown keys.

No operation executes their code, and each rejection has a reason.
"""

import json
import pickle
import struct
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.hub.export import tokenizer
from playground.hub.task_runner import HubTask
from playground.jobs.progress import ProgressReporter
from playground.pretrained.pipelines import open_pipeline
from playground.pretrained.resolver import resolve
from playground.tasks import Vocabulary
from playground.training.trainer import Trainer
from tests.support.small_runs import tiny_config


class Singing:
    """An object whose unpickling creates a file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path):
    """A file that exists after any execution of the repository's code, and that code."""
    path = tmp_path / "canary"
    pickled, code = (
        pickle.dumps(Singing(path)),
        f"import pathlib\npathlib.Path({str(path)!r}).touch()\nclass Evil: pass\n".encode(),
    )
    for sing in (lambda: pickle.loads(pickled), lambda: exec(code)):
        sing()
        assert path.exists()
        path.unlink()
    yield path, pickled, code
    assert not path.exists(), "code of a foreign repository was executed"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The files of a valid model of the playground, as in a repository."""
    folder = tmp_path_factory.mktemp("own") / "checkpoint"
    trainer = Trainer(tiny_config(max_steps=20))
    save_checkpoint(folder, trainer, [trainer.train_step()])
    names = {"config.json": "playground.json"}
    return {names.get(path.name, path.name): path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """The files of an untrained tiny GPT-2, which transformers loads."""
    folder = tmp_path_factory.mktemp("gpt2")
    vocabulary = Vocabulary("0123456789")
    GPT2LMHeadModel(
        GPT2Config(vocab_size=13, n_positions=32, n_embd=8, n_layer=1, n_head=1)
    ).save_pretrained(folder)
    tokenizer(vocabulary, 32).save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


AUTO_MAP = {
    "AutoConfig": "evil.Evil",
    "AutoModelForCausalLM": "evil.Evil",
    "AutoModel": "evil.Evil",
    "AutoModelForSeq2SeqLM": "evil.Evil",
}


def changed(data, **values):
    return json.dumps(json.loads(data) | values).encode()


def zipped_pickle(pickled, folder):
    """Return the format of torch.save: a zip file with a pickle."""
    path = folder / "saved.bin"
    torch.save({"w": torch.zeros(1)}, path)
    return path.read_bytes().replace(b"ctorch._utils", pickled[: len(b"ctorch._utils")])


def repositories(own, gpt2, canary, folder):
    """Return repositories by name: their files, and the messages of pull, reproduce and compare.

    None means that the model is used without its code.
    """
    _, pickled, code = canary
    evil = {
        "evil.py": code,
        "__init__.py": code,
        "modeling.py": code,
        "custom_generate/generate.py": code,
    }
    without = {name: data for name, data in own.items() if name != "model.safetensors"}
    mapped = evil | {
        "tokenizer_config.json": changed(
            gpt2["tokenizer_config.json"], auto_map={"AutoTokenizer": ["evil.Evil", None]}
        )
    }
    model = json.loads(own["playground.json"])["model"]
    header = struct.pack("<Q", len(pickled)) + pickled
    return {
        "pickle-only": (
            without
            | {
                "pytorch_model.bin": pickled,
                "training.pt": pickled,
                "config.json": gpt2["config.json"],
            },
            "model.safetensors is missing",
            "has no weights in the safetensors format",
        ),
        "pickle-in-disguise": (
            own | gpt2 | {"model.safetensors": zipped_pickle(pickled, folder)},
            "not a complete safetensors file",
            "is not a complete safetensors file",
        ),
        "pickle-as-header": (
            own | gpt2 | {"model.safetensors": header},
            "its header is invalid",
            "is not a complete safetensors file",
        ),
        "auto-map": (
            gpt2
            | mapped
            | {"config.json": changed(gpt2["config.json"], auto_map=AUTO_MAP, model_type="mine")},
            "playground.json is missing",
            "needs its own code, which is not run here",
        ),
        "auto-map-of-a-known-kind": (
            gpt2
            | mapped
            | {
                "config.json": changed(gpt2["config.json"], auto_map=AUTO_MAP),
                "playground.json": changed(own["playground.json"], auto_map=AUTO_MAP),
            },
            "it holds the unknown key 'auto_map'",
            None,
        ),
        "unknown-keys": (
            own
            | gpt2
            | evil
            | {
                "playground.json": changed(
                    own["playground.json"], model=model | {"custom_class": "evil.Evil"}
                ),
                "model.safetensors": own["model.safetensors"],
                "config.json": changed(
                    gpt2["config.json"], custom_pipelines={"text-generation": {"impl": "evil.Evil"}}
                ),
            },
            "model holds the unknown setting 'custom_class'",
            "its predictions would be random",
        ),
    }


NAMES = (
    "pickle-only",
    "pickle-in-disguise",
    "pickle-as-header",
    "auto-map",
    "auto-map-of-a-known-kind",
    "unknown-keys",
)


@pytest.fixture
def repository(request, hub, own, gpt2, canary, tmp_path, monkeypatch):
    """The repository of this name on the Hub, and its description."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    made = repositories(own, gpt2, canary, tmp_path)
    assert tuple(made) == NAMES
    files, pulled, compared = made[request.param]
    hub.put(f"eve/{request.param}", files)
    return f"eve/{request.param}", pulled, compared


@pytest.mark.smoke
@pytest.mark.parametrize("repository", NAMES, indirect=True)
@pytest.mark.parametrize("kind", ["repo_info", "pull", "reproduce"])
def test_a_hub_task_runs_no_code_and_reports_the_rejection(
    hub, repository, run_task_in_process, tmp_path, kind
):
    repo, expected_message, _ = repository
    (tmp_path / "work").mkdir()
    into = tmp_path / "in"
    outcome, sentence, *again = run_task_in_process(
        HubTask(kind, repo, endpoint=hub.url, destination=str(into)), tmp_path / "work"
    )
    # its weights are not read
    if kind == "repo_info" and repo.startswith("eve/pickle-") and repo != "eve/pickle-only":
        assert outcome == "result"
    else:
        assert (outcome, again) == ("failed", [False])
        assert expected_message in sentence
        assert str(tmp_path) not in sentence
    assert not into.exists()
    fetched = {request.path.split("/")[-1] for request in hub.requests_with(f"{repo}/resolve")}
    assert not [name for name in fetched if name.endswith((".py", ".bin", ".pt"))]


@pytest.mark.usefixtures("restore_hub_client")
@pytest.mark.parametrize("repository", NAMES, indirect=True)
def test_a_comparison_runs_no_code_and_reports_the_rejection(hub, repository, tmp_path):
    repo, _, expected_message = repository

    def opened():
        return open_pipeline(
            "text-generation", resolve(repo, ProgressReporter()), ProgressReporter()
        )

    if expected_message is None:
        pipe = opened()
        assert type(pipe.model) is GPT2LMHeadModel
        assert type(pipe.tokenizer).__module__.startswith("transformers.")
    else:
        with pytest.raises(UserError) as refused:
            opened()
        assert expected_message in str(refused.value)
    assert not (tmp_path / "modules").exists()
    fetched = {request.path.split("/")[-1] for request in hub.requests_with(f"{repo}/resolve")}
    assert not [name for name in fetched if name.endswith((".py", ".bin", ".pt"))]
