"""Models of a fake Hub are listed, measured and downloaded; errors have messages.

The models are fixtures with the names of the real ones.
"""

import errno
import json
import os
import shutil
import socket
import struct
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained.jobs import run
from playground.pretrained.loading import cache as model_cache
from playground.pretrained.loading import download, model_files, pipelines
from playground.pretrained.loading.cache import list_cached_names
from playground.pretrained.loading.model_files import kind_of
from playground.pretrained.loading.pipelines import open_pipeline, unload
from playground.pretrained.loading.resolver import describe_models, list_cached, resolve
from playground.training.trainer import Trainer
from tests.support.app_server import wait_for
from tests.support.files import read_files
from tests.support.small_runs import tiny_config


@pytest.fixture
def cache(hub, tmp_path, monkeypatch):
    """Create an empty cache and an empty Hub."""
    from huggingface_hub import constants

    hub.clear()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def served(hub, cache, tiny_gpt2, tiny_bert):
    others = {"pytorch_model.bin": b"pickle", "onnx/model.onnx": b"graph", "README.md": "# card"}
    hub.put("gpt2", read_files(tiny_gpt2) | others)
    hub.put("bert-base-uncased", read_files(tiny_bert))
    return hub


def get_error(name, report=None, **settings):
    with pytest.raises(UserError) as error:
        resolve(name, report or ProgressReporter(), **settings)
    return str(error.value), error.value.retryable


@pytest.mark.smoke
def test_model_is_downloaded_once_and_then_loaded_from_cache(served, cache):
    messages = []
    actual = resolve("gpt2", ProgressReporter(lambda *message: messages.append(message)))
    assert (actual.location, actual.commit) == ("downloaded", served.repo("gpt2").head.oid)
    others = {"pytorch_model.bin", "onnx/model.onnx", "README.md"}
    downloaded = {path.name for path in Path(actual.folder).iterdir()}
    assert downloaded == set(served.files("gpt2")) - others
    weights = len(served.files("gpt2")["model.safetensors"])
    assert actual.bytes == weights
    progress = [message for message in messages if message[0] == "progress"]
    assert progress[-1][1] <= progress[-1][2]
    assert any("KB in" in message[1] for message in messages if message[0] == "message")
    with served.record_requests() as requests:
        second = resolve("gpt2", ProgressReporter())
    assert (second.location, second.folder, requests) == ("cache", actual.folder, [])
    assert {request.token for request in served.requests} <= {""}
    assert list_cached_names() == ["gpt2"]


def test_the_size_is_capped_before_the_download(served, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_MAX_MODEL_MB", "0.1")
    with served.record_requests() as requests:
        message, retryable = get_error("gpt2")
    assert "KB of weights, more than the maximum of 100 KB; choose a smaller model" in message
    assert not retryable
    assert not [request for request in requests if "/resolve/" in request.path]


def test_facts_contain_sizes_without_a_download(served, tiny_gpt2):
    with served.record_requests() as requests:
        names = ["gpt2", "bert-base-uncased", "ada/missing", tiny_gpt2, 7]
        rows = describe_models({"models": names}, ProgressReporter())["models"]
    facts = [(row["name"], row["location"], row["kind"]) for row in rows[:2]]
    assert facts == [("gpt2", "hub", "causal"), ("bert-base-uncased", "hub", "masked")]
    assert rows[0]["parameters"] > 100_000
    assert rows[0]["memory"] > 4 * rows[0]["parameters"]
    assert "there is no repository ada/missing" in rows[2]["message"]
    assert (rows[3]["location"], rows[3]["kind"]) == ("directory", "causal")
    assert "is not the name of a model" in rows[4]["message"]
    assert not any(row["code"] for row in rows)
    assert not [request for request in requests if "/resolve/" in request.path]
    assert list_cached({}, ProgressReporter())["models"] == []


def test_a_gated_model_is_not_requested(served, tiny_gpt2):
    served.put("meta/gated", read_files(tiny_gpt2), gated="manual")
    message, _ = get_error("meta/gated")
    assert message.startswith("meta/gated is gated")
    assert "give its folder" in message


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Folders of untrained checkpoints: reversal of letters, and of long sequences of digits."""
    folders = {}
    for name, task in (("letters", {"n_symbols": 62}), ("long", {"max_length": 200})):
        trainer = Trainer(tiny_config(max_steps=1, max_positions=201, **task))
        folders[name] = tmp_path_factory.mktemp("checkpoint") / name
        save_checkpoint(folders[name], trainer, list(trainer))
    return folders


@pytest.mark.parametrize(
    ("kind", "model", "fields", "message"),
    [
        ("finetune", "tiny-bert", {"checkpoint": "letters"}, "cannot distinguish the symbol a"),
        ("finetune", "tiny-gpt2", {"checkpoint": "long"}, "this model has 256 positions"),
        ("finetune", "tiny-t5", {"checkpoint": "letters"}, "has an encoder and a decoder"),
        ("benchmark", "bert-without-z", {"checkpoint": "letters"}, "has no single token for 'z'"),
        ("benchmark", "tiny-t5", {"checkpoint": "letters"}, "has an encoder and a decoder"),
        ("inference", "tiny-bert", {"task": "text-generation"}, "is a masked language model"),
        ("inference", "tiny-gpt2", {"task": "fill-mask"}, "is a causal language model"),
        ("attention", "tiny-t5", {}, "has an encoder and a decoder"),
        ("translate", "tiny-gpt2", {}, "is not an encoder-decoder"),
    ],
)
def test_an_unsuitable_model_is_rejected_before_its_weights_are_requested(
    hub, cache, tiny_models, checkpoints, kind, model, fields, message
):
    files = read_files(tiny_models / model.replace("bert-without-z", "tiny-bert"))
    if model == "bert-without-z":
        files["tokenizer.json"] = files["tokenizer.json"].replace(b'"z"', b'"zz"')
    hub.put(f"ada/{model}", files)
    fields = fields | {"model": f"ada/{model}", "models": [f"ada/{model}"], "n": 1, "text": "a"}
    if "checkpoint" in fields:
        fields["checkpoint"] = str(checkpoints[fields["checkpoint"]])
    with hub.record_requests() as requests:
        try:
            problem = run(kind, fields, ProgressReporter())["rows"][-1]["error"]
        except UserError as error:
            problem = str(error)
    assert message in problem
    paths = [request.path for request in requests]
    assert any(path.endswith("/tokenizer.json") for path in paths)
    assert not any(path.endswith(".safetensors") for path in paths)
    assert list_cached_names() == []


@pytest.mark.smoke
def test_pickles_and_foreign_code_are_not_loaded(served, tiny_gpt2):
    files = read_files(tiny_gpt2)
    served.put("ben/pickled", {"config.json": files["config.json"], "pytorch_model.bin": b"pickle"})
    assert "has no weights in the safetensors format" in get_error("ben/pickled")[0]
    code = {"model_type": "unknown", "auto_map": {"AutoModel": "code.Model"}}
    config = json.dumps(json.loads(files["config.json"]) | code).encode()
    served.put("ben/code", files | {"config.json": config, "code.py": b"raise SystemExit"})
    assert "needs its own code" in get_error("ben/code")[0]
    with served.record_requests() as requests:
        get_error("ben/code")
    assert not [each for each in requests if each.path.endswith((".py", ".safetensors"))]


def test_on_a_space_models_that_were_preloaded_are_used_without_a_download(
    cache, tiny_gpt2, tmp_path, monkeypatch
):
    snapshot = tmp_path / "home/.cache/huggingface/hub/models--openai-community--gpt2/snapshots/abc"
    shutil.copytree(tiny_gpt2, snapshot)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPACE_ID", raising=False)
    with pytest.raises(UserError, match="not on this machine"):
        resolve("gpt2", ProgressReporter(), local_only=True)
    monkeypatch.setenv("SPACE_ID", "owner/space")
    for name in ("gpt2", "openai-community/gpt2"):
        actual = resolve(name, ProgressReporter())
        assert (actual.folder, actual.location) == (str(snapshot), "cache")


def test_an_interrupted_download_continues_or_has_a_message(served, cache):
    with served.fault(served.STORAGE, "cut", times=1, method="GET"):
        assert resolve("gpt2", ProgressReporter()).location == "downloaded"
    shutil.rmtree(cache)
    with served.fault(served.RESOLVE, 503, method="GET"):
        message, retryable = get_error("gpt2")
    assert "of gpt2" in message
    assert "try again" in message
    assert retryable
    assert not list(cache.rglob("*.safetensors"))
    assert list_cached_names() == []


def test_a_download_that_hangs_can_be_cancelled(served):
    cancelled, before = threading.Event(), len(served.requests)

    def receive(*_):
        if any(each.path.endswith("model.safetensors") for each in served.requests[before:]):
            cancelled.set()

    with served.fault(served.STORAGE, "hang", method="GET"), pytest.raises(JobCancelled):
        resolve("gpt2", ProgressReporter(receive, cancelled))


def test_a_hub_without_a_response_times_out(served, monkeypatch):
    monkeypatch.setattr(download, "SILENCE_TIMEOUT_S", 0.3)
    with served.fault(served.INFO.replace("/[^/]+/[^/]+", "/.+"), "silent"):
        message, retryable = get_error("bert-base-uncased")
    assert "bert-base-uncased: the Hub sent no data for 0 s" in message
    assert retryable


@pytest.fixture
def closed_port():
    """Return the address of a port that refuses connections."""
    with socket.socket() as closed_socket:
        closed_socket.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed_socket.getsockname()[1]}"


def test_without_a_hub_the_cached_models_are_listed(served, monkeypatch, closed_port):
    resolve("bert-base-uncased", ProgressReporter())
    monkeypatch.setenv("HF_ENDPOINT", closed_port)
    message, retryable = get_error("gpt2")
    assert "cannot be reached" in message
    assert "Already on this machine: bert-base-uncased" in message
    assert retryable
    # an invalid name is reported without a request
    requested = {"models": ["gpt2", "bert-base-uncased", "x" * 200]}
    rows = describe_models(requested, ProgressReporter())["models"]
    assert [row["code"] for row in rows] == ["hub_unreachable", "", ""]
    # no request is sent
    assert resolve("bert-base-uncased", ProgressReporter()).location == "cache"
    assert "not on this machine yet" in get_error("gpt2", local_only=True)[0]


def test_full_disk_is_reported_before_and_during_a_download(served, monkeypatch):
    import huggingface_hub

    usage = shutil.disk_usage(".")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
        message, retryable = get_error("gpt2")
    assert "gpt2 takes" in message
    assert "are free on this disk; free some space" in message
    assert retryable

    def raise_disk_full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub.HfApi, "hf_hub_download", raise_disk_full)
    message, retryable = get_error("gpt2")
    assert "of gpt2: No space left on device; free disk space" in message
    assert retryable


@pytest.mark.parametrize("name", ["", "../secrets", "gpt2 --flag", None])
def test_invalid_names_are_rejected_before_any_request(served, name):
    with served.record_requests() as requests:
        message, _ = get_error(name)
    assert "is not the name of a model; give one of the Hub, such as gpt2 or user/name" in message
    assert requests == []


def test_shared_server_rejects_folders_as_models(cache, tiny_gpt2, monkeypatch):
    assert resolve(tiny_gpt2, ProgressReporter()).location == "directory"
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    assert "is not the name of a model" in get_error(tiny_gpt2)[0]
    assert "folder" not in get_error(tiny_gpt2)[0]
    assert not describe_models({"models": [tiny_gpt2]}, ProgressReporter())["folders"]


def copy_with_config(folder, destination, **config):
    shutil.copytree(folder, destination)
    path = destination / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return destination


def get_load_error(folder, task="text-generation"):
    with pytest.raises(UserError) as error:
        open_pipeline(task, resolve(str(folder), ProgressReporter()), ProgressReporter())
    assert str(folder) in str(error.value)
    return str(error.value)


def test_oversized_configs_and_corrupt_weights_are_rejected(tiny_gpt2, tiny_bert, tmp_path):
    assert "sets n_layer to 1e+05; the maximum is 200" in get_load_error(
        copy_with_config(tiny_gpt2, tmp_path / "deep", n_layer=100_000)
    )
    assert "has -4 layers" in get_load_error(
        copy_with_config(tiny_gpt2, tmp_path / "negative", n_layer=-4, num_layers=None)
    )
    assert "parameters and its weights contain" in get_load_error(
        copy_with_config(tiny_gpt2, tmp_path / "wide", n_embd=65536)
    )
    assert "cannot be loaded for text-generation" in get_load_error(
        copy_with_config(tiny_gpt2, tmp_path / "odd", n_embd=30)
    )
    headless = copy_with_config(tiny_bert, tmp_path / "headless")
    tensors = load_file(headless / "model.safetensors")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("cls.")}
    save_file(tensors, headless / "model.safetensors", {"format": "pt"})
    assert "its predictions would be random" in get_load_error(headless, "fill-mask")
    nan = copy_with_config(tiny_gpt2, tmp_path / "nan")
    tensors = load_file(nan / "model.safetensors")
    tensors["transformer.ln_f.weight"].fill_(torch.nan)
    save_file(tensors, nan / "model.safetensors", {"format": "pt"})
    assert "not finite" in get_load_error(nan)
    cut = copy_with_config(tiny_gpt2, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:100])
    assert "is not a complete safetensors file" in get_error(str(cut))[0]
    (cut / "config.json").write_text("[" * 100_000)
    assert "cannot be read" in get_error(str(cut))[0]


SHAPES = {
    "of 100,000 dimensions": "[" + "549755813888, " * 99_999 + "1]",
    "less than nothing": "[-4]",
    "infinite": "[1e999]",
    "not a number": "[NaN]",
    "text": '["x"]',
    "none": "null",
    "too many digits": "[" + "9" * 5000 + "]",
    "nested": "[" * 500 + "]" * 500,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_weights_of_impossible_shape_are_rejected_without_overflow(
    tiny_gpt2, tmp_path, monkeypatch, shape
):
    monkeypatch.setattr(model_files.math, "prod", lambda _: pytest.fail("this may take hours"))
    odd = copy_with_config(tiny_gpt2, tmp_path / "odd")
    header = f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 4]}}}}'.encode()
    (odd / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert "model.safetensors is not a complete safetensors file" in get_error(str(odd))[0]


INDEX = {
    "brackets": '{"weight_map": ' + "[" * 100_000,
    "pages of blanks": '{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    + " " * 2_000_000,
}


@pytest.mark.parametrize("index", INDEX.values(), ids=INDEX)
def test_bad_weight_index_is_rejected_and_hides_no_other_model(served, cache, tiny_gpt2, index):
    resolve("gpt2", ProgressReporter())
    folder = copy_with_config(tiny_gpt2, cache / "models--ada--odd" / "snapshots" / "0")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert [row["name"] for row in list_cached({}, ProgressReporter())["models"]] == ["gpt2"]
    assert "contains no model.safetensors" in get_error(str(folder))[0]


COUNTS = {
    "num_labels": {"num_labels": 10**9},
    "num_hidden_layers": {"text_config": {"num_hidden_layers": 10**9}},
    "n_layer": {"parts": [{"n_layer": 1e300}]},
}


@pytest.mark.parametrize("name", COUNTS)
def test_excessive_config_counts_are_rejected_before_transformers(
    tiny_gpt2, tmp_path, monkeypatch, name
):
    from transformers import AutoConfig

    monkeypatch.setattr(AutoConfig, "from_pretrained", Mock(side_effect=MemoryError))
    message = get_load_error(copy_with_config(tiny_gpt2, tmp_path / "vast", **COUNTS[name]))
    assert f"its config.json sets {name} to 1e+" in message
    maximum = "200" if "layer" in name else "1,000,000"
    assert f"the maximum is {maximum}; choose another model" in message
    AutoConfig.from_pretrained.assert_not_called()


def test_without_memory_models_are_unloaded_before_an_error(tiny_gpt2, tiny_bert, monkeypatch):
    unload()
    small, large = resolve(tiny_bert, ProgressReporter()), resolve(tiny_gpt2, ProgressReporter())
    stored = open_pipeline("fill-mask", small, ProgressReporter())
    assert open_pipeline("fill-mask", small, ProgressReporter()) is stored
    free = iter([0, 10**12, 10**12])
    with monkeypatch.context() as patch:
        patch.setattr(pipelines, "free_memory", lambda: next(free))
        open_pipeline("text-generation", large, ProgressReporter())
    assert list(pipelines._loaded) == [("text-generation", large.folder)]
    monkeypatch.setattr(pipelines, "free_memory", lambda: 50_000_000)
    message = r"needs about 300 MB and 50\.0 MB are free; choose a smaller model"
    with pytest.raises(UserError, match=message) as error:
        open_pipeline("fill-mask", small, ProgressReporter())
    assert error.value.retryable
    unload()


def test_load_errors_are_logged_with_traceback(tiny_bert, monkeypatch, caplog):
    def fail(*_):
        raise TypeError("a mistake in this program")

    monkeypatch.setattr(pipelines, "_load", fail)
    monkeypatch.setattr(pipelines, "_loaded", pipelines.OrderedDict())
    with pytest.raises(UserError, match="cannot be loaded"):
        open_pipeline("fill-mask", resolve(tiny_bert, ProgressReporter()), ProgressReporter())
    assert caplog.records[-1].exc_info[0] is TypeError


def test_concurrent_requests_load_a_model_once(tiny_bert, monkeypatch):
    unload()
    loads, requests, pipes, load = [], [], [], pipelines._load

    def load_slowly(task, actual):
        loads.append(task)
        wait_for(lambda: len(requests) == 4, description="all requests")
        return load(task, actual)

    def request():
        requests.append(1)
        pipes.append(open_pipeline("fill-mask", actual, ProgressReporter()))

    monkeypatch.setattr(pipelines, "_load", load_slowly)
    actual = resolve(tiny_bert, ProgressReporter())
    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["fill-mask"]
    assert len(set(map(id, pipes))) == 1


@pytest.mark.parametrize(
    ("model_type", "architectures", "kind"),
    [
        ("bert", ["BertForMaskedLM"], "masked"),
        ("bert", ["BertLMHeadModel"], "causal"),
        ("t5", ["T5ForConditionalGeneration"], ""),
        (None, "GPT2LMHeadModel", ""),
    ],
)
def test_type_of_a_model_is_read_from_its_config(model_type, architectures, kind):
    assert kind_of({"model_type": model_type, "architectures": architectures}) == kind


def test_own_model_cache_evicts_the_least_recently_used_model(
    served, cache, tiny_gpt2, monkeypatch
):
    size = sum(len(content) for path, content in read_files(tiny_gpt2).items())
    for name in ("ada/a", "ada/b", "ada/c", "ada/d"):
        served.put(name, read_files(tiny_gpt2))
    monkeypatch.setenv("PLAYGROUND_MODEL_CACHE_MB", str(2.5 * size / 1e6))
    resolve("ada/a", ProgressReporter())
    resolve("ada/b", ProgressReporter())
    resolve("ada/c", ProgressReporter())
    # the cache of another program stays unchanged
    assert list_cached_names() == ["ada/a", "ada/b", "ada/c"]

    monkeypatch.setenv("PLAYGROUND_MODELS", str(cache))
    message, retryable = get_error("ada/d")
    # a job may be about to open the cached models
    assert "are in use; choose a cached model" in message
    assert retryable
    monkeypatch.setattr(model_cache, "IN_USE_TTL_S", -1.0)
    for age, name in enumerate(("c", "b", "a")):
        os.utime(cache / f"models--ada--{name}", (1e9 - age, 1e9 - age))
    # a loaded model is not evicted
    model = resolve("ada/b", ProgressReporter(), local_only=True)
    open_pipeline("text-generation", model, ProgressReporter())
    resolve("ada/a", ProgressReporter())
    assert resolve("ada/d", ProgressReporter()).location == "downloaded"
    assert list_cached_names() == ["ada/b", "ada/d"]
    unload()

    monkeypatch.setattr(model_cache, "SHARED_MIN_FREE_DISK_BYTES", 10**15)
    assert "are free on this disk" in get_error("ada/a")[0]
