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

from playground.errors import UserError
from playground.hub.export import tokenizer
from playground.hub.tasks import HubTask
from playground.jobs.progress import ProgressReporter
from playground.pretrained.loading.pipelines import open_pipeline
from playground.pretrained.loading.resolver import resolve
from playground.tasks import Vocabulary


class TouchOnUnpickle:
    """An object whose unpickling creates a file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path):
    """A file that exists after any execution of the repository's code, and that code."""
    path = tmp_path / "canary"
    pickle_bytes = pickle.dumps(TouchOnUnpickle(path))
    code = f"import pathlib\npathlib.Path({str(path)!r}).touch()\nclass Evil: pass\n".encode()
    for execute in (lambda: pickle.loads(pickle_bytes), lambda: exec(code)):
        execute()
        assert path.exists()
        path.unlink()
    yield path, pickle_bytes, code
    assert not path.exists(), "code of a foreign repository was executed"


@pytest.fixture(scope="module")
def valid_files(published_files):
    """Return the files of a valid model of the playground, as in a repository."""
    names = ("playground.json", "metrics.jsonl", "model.safetensors", "training.safetensors")
    return {name: published_files[name] for name in names}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Return the files of an untrained tiny GPT-2 that transformers loads."""
    folder = tmp_path_factory.mktemp("gpt2")
    vocabulary = Vocabulary("0123456789")
    GPT2LMHeadModel(
        GPT2Config(vocab_size=13, n_positions=32, n_embd=8, n_layer=1, n_head=1)
    ).save_pretrained(folder)
    tokenizer(vocabulary, 32).save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


AUTO_CLASSES = ("AutoConfig", "AutoModelForCausalLM", "AutoModel", "AutoModelForSeq2SeqLM")
AUTO_MAP = dict.fromkeys(AUTO_CLASSES, "evil.Evil")


def update_json(data, **values):
    return json.dumps(json.loads(data) | values).encode()


def torch_save_file(pickle_bytes, folder):
    """Return the format of torch.save: a zip file with a pickle."""
    path = folder / "saved.bin"
    torch.save({"w": torch.zeros(1)}, path)
    return path.read_bytes().replace(b"ctorch._utils", pickle_bytes[: len(b"ctorch._utils")])


def repositories(valid_files, gpt2, canary, folder):
    """Return repositories by name: their files, and the messages of pull, reproduce and compare.

    None means that the model is used without its code.
    """
    _, pickle_bytes, code = canary
    names = ("evil.py", "__init__.py", "modeling.py", "custom_generate/generate.py")
    evil = dict.fromkeys(names, code)
    without_weights = {
        name: data for name, data in valid_files.items() if name != "model.safetensors"
    }
    with_auto_map = evil | {
        "tokenizer_config.json": update_json(
            gpt2["tokenizer_config.json"], auto_map={"AutoTokenizer": ["evil.Evil", None]}
        )
    }
    model = json.loads(valid_files["playground.json"])["model"]
    header = struct.pack("<Q", len(pickle_bytes)) + pickle_bytes
    return {
        "pickle-only": (
            without_weights
            | dict.fromkeys(("pytorch_model.bin", "training.pt"), pickle_bytes)
            | {"config.json": gpt2["config.json"]},
            "model.safetensors is missing",
            "has no weights in the safetensors format",
        ),
        "pickle-named-safetensors": (
            valid_files | gpt2 | {"model.safetensors": torch_save_file(pickle_bytes, folder)},
            "not a complete safetensors file",
            "is not a complete safetensors file",
        ),
        "pickle-as-header": (
            valid_files | gpt2 | {"model.safetensors": header},
            "invalid UTF-8 in header",
            "is not a complete safetensors file",
        ),
        "auto-map": (
            gpt2
            | with_auto_map
            | {
                "config.json": update_json(
                    gpt2["config.json"], auto_map=AUTO_MAP, model_type="unknown"
                )
            },
            "playground.json is missing",
            "needs its own code, which is not run here",
        ),
        "auto-map-of-a-known-type": (
            gpt2
            | with_auto_map
            | {
                "config.json": update_json(gpt2["config.json"], auto_map=AUTO_MAP),
                "playground.json": update_json(valid_files["playground.json"], auto_map=AUTO_MAP),
            },
            "'auto_map' is not a field",
            None,
        ),
        "unknown-keys": (
            valid_files
            | gpt2
            | evil
            | {
                "playground.json": update_json(
                    valid_files["playground.json"], model=model | {"custom_class": "evil.Evil"}
                ),
                "model.safetensors": valid_files["model.safetensors"],
                "config.json": update_json(
                    gpt2["config.json"], custom_pipelines={"text-generation": {"impl": "evil.Evil"}}
                ),
            },
            "model holds the unknown setting 'custom_class'",
            "its predictions would be random",
        ),
    }


NAMES = (
    *("pickle-only", "pickle-named-safetensors", "pickle-as-header", "auto-map"),
    *("auto-map-of-a-known-type", "unknown-keys"),
)


@pytest.fixture
def repository(request, hub, valid_files, gpt2, canary, tmp_path, monkeypatch):
    """Create the repository on the Hub; return its id and the expected errors."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    all_repositories = repositories(valid_files, gpt2, canary, tmp_path)
    assert tuple(all_repositories) == NAMES
    files, pull_error, compare_error = all_repositories[request.param]
    hub.put(f"eve/{request.param}", files)
    return f"eve/{request.param}", pull_error, compare_error


def fetched_code(hub, repo):
    """Return the downloaded files of a repository that may contain code."""
    paths = [request.path for request in hub.requests_with(f"{repo}/resolve")]
    return [path for path in paths if path.endswith((".py", ".bin", ".pt"))]


@pytest.mark.smoke
@pytest.mark.parametrize("repository", NAMES, indirect=True)
def test_a_hub_task_runs_no_code_and_reports_the_rejection(
    hub, repository, run_task_in_process, tmp_path
):
    repo, expected_message, _ = repository
    destination = tmp_path / "in"
    task = HubTask("pull", repo, endpoint=hub.url, destination=str(destination))
    outcome, message, retryable = run_task_in_process(task, tmp_path / "work")
    assert (outcome, retryable) == ("failed", False)
    assert expected_message in message
    assert str(tmp_path) not in message
    assert not destination.exists()
    assert fetched_code(hub, repo) == []


@pytest.mark.parametrize("repository", NAMES, indirect=True)
def test_a_comparison_runs_no_code_and_reports_the_rejection(hub, repository, tmp_path):
    repo, _, expected_message = repository

    def open_model():
        return open_pipeline(
            "text-generation", resolve(repo, ProgressReporter()), ProgressReporter()
        )

    if expected_message is None:
        pipe = open_model()
        assert type(pipe.model) is GPT2LMHeadModel
        assert type(pipe.tokenizer).__module__.startswith("transformers.")
    else:
        with pytest.raises(UserError) as error:
            open_model()
        assert expected_message in str(error.value)
    assert not (tmp_path / "modules").exists()
    assert fetched_code(hub, repo) == []
