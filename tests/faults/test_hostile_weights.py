"""Hostile weight files, from an upload or a repository on the Hub.

The author of a file also wrote its checksums, so config.json proves nothing. A file that differs
from the settings is rejected before it is mapped or allocated.
"""

import hashlib
import io
import json
import random
import resource
import struct
import tracemalloc
import zipfile
from functools import cache

import pytest
import safetensors.torch
import torch
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.checkpoints import checkpoint
from playground.checkpoints.checkpoint import (
    load_model,
    restore_trainer,
    save_checkpoint,
    weights_by_name,
)
from playground.checkpoints.manifest import CheckpointError
from playground.errors import UserError
from playground.hub.export import FILE_MAP, checkpoint_from_package
from playground.pretrained.model_files import _parameter_count
from playground.runs.inspector_process import Inspector
from playground.runs.owner_keys import new_owner_key
from playground.server.checkpoint_transfer import CHECKPOINT_PATH, CheckpointTransfer
from playground.training.trainer import Trainer
from tests.faults.test_corrupt import is_rejected
from tests.support.small_runs import repeat_counts, tiny_config

WEIGHTS, STATE = "model.safetensors", "training.safetensors"
MODEL_AND_HEADER = 2_000_000  # bytes that reading the good file may take, and then some
STEPS = 3


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The files of a valid checkpoint, by name, and the trainer that wrote them."""
    trainer = Trainer(tiny_config())
    metrics = [trainer.train_step() for _ in range(STEPS)]
    folder = tmp_path_factory.mktemp("good") / "checkpoint"
    save_checkpoint(folder, trainer, metrics)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, trainer


def split(content):
    """Return the header and the data of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(header, data, length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def vouched(files):
    """Return the files with valid checksums in config.json, as an author would write them."""
    config = json.loads(files["config.json"])
    config["sha256"] = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in files.items()
        if name.endswith(".safetensors")
    }
    return files | {"config.json": json.dumps(config).encode()}


# Handmade files. Each is given the header and the data of a good one; output.weight has 13 x 8
# numbers in 416 bytes.


def first_number(value):
    return lambda header, data: join(header, struct.pack("<f", value) + data[4:])


def described(**changes):
    return lambda header, data: join(
        header | {"output_proj.weight": header["output_proj.weight"] | changes}, data
    )


def a_key_twice(header, data):
    name, entry = next(iter(header.items()))
    return join(
        f"{{{json.dumps(name)}: {json.dumps(entry)}, {json.dumps(header)[1:]}".encode(), data
    )


def overlapping(header, data):
    one, other = [name for name in header if name.endswith("norm.bias")][:2]
    return join(header | {one: header[other]}, data)


def moved(header, by):
    return {
        name: entry | {"data_offsets": [at + by for at in entry["data_offsets"]]}
        for name, entry in header.items()
    }


def empty_and_endless(header, data):
    entry = {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [len(data), len(data)]}
    return join(header | {"payload": entry}, data)


def many(header, data):
    return join(
        {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(200_000)},
        b"",
    )


def one_missing(header, data):
    last = max(header, key=lambda name: header[name]["data_offsets"])
    begin, _ = header[last]["data_offsets"]
    return join({name: entry for name, entry in header.items() if name != last}, data[:begin])


def one_more(header, data):
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    return join(header | {"payload": entry}, data + bytes(4))


HANDMADE = {
    "NaN": (first_number(float("nan")), "holds NaN or infinity"),
    "infinite": (first_number(float("-inf")), "holds NaN or infinity"),
    "a key twice": (a_key_twice, "a key occurs twice"),
    "huge shape": (described(shape=[2**40, 2**40]), "overflow computing buffer size"),
    "header of 90 MB": (
        lambda header, data: join(b'{"a": "' + b"x" * 90_000_000 + b'"}', data),
        "its header claims 90,000,009 bytes",
    ),
    "header of 16 EB": (
        lambda header, data: join(header, data, 2**64 - 1),
        "its header claims 18,446,744,073,709,551,615 bytes",
    ),
    "200,000 tensors": (many, "bytes"),
    "wrong type": (described(dtype="F64"), "invalid shape, data type, or offset"),
    "overlapping": (overlapping, "invalid offset for tensor"),
    "a gap": (
        lambda header, data: join(moved(header, 64), bytes(64) + data),
        "invalid offset for tensor",
    ),
    "trailing bytes": (
        lambda header, data: join(header, data + bytes(64)),
        "file not fully covered",
    ),
    "negative offsets": (described(data_offsets=[-416, 0]), "expected usize"),
    "reversed offsets": (described(data_offsets=[416, 0]), "invalid offset for tensor"),
    "no JSON": (
        lambda header, data: join(b"\x80\x04hello, I am a pickle", data),
        "its header is invalid",
    ),
    "a tensor missing": (one_missing, "lacks tensor"),
    "a tensor too many": (one_more, "holds the unexpected tensor 'payload'"),
    "empty and endless": (empty_and_endless, "holds the unexpected tensor 'payload'"),
    "cut off": (lambda header, data: join(header, data[:-4]), "file not fully covered"),
}
ONLY_IN_THE_NUMBERS = ("NaN", "infinite")  # visible in no header


@pytest.fixture(scope="module")
def handmade(good):
    """Return the files of a checkpoint with these weights, and the error, by name."""
    files, _ = good
    return {
        name: (vouched(files | {WEIGHTS: make(*split(files[WEIGHTS]))}), expected_message)
        for name, (make, expected_message) in HANDMADE.items()
    }


@pytest.mark.smoke
@pytest.mark.parametrize("name", HANDMADE)
def test_crafted_hub_weights_are_rejected_before_memory_mapping(
    handmade, tmp_path, monkeypatch, name
):
    files, expected_message = handmade[name]
    package = tmp_path / "package"
    package.mkdir()
    for each, data in files.items():
        (package / FILE_MAP[each]).write_bytes(data)
    mapped, load = [], safetensors.torch.load_file
    monkeypatch.setattr(
        safetensors.torch, "load_file", lambda path: mapped.append(path) or load(path)
    )
    with pytest.raises(CheckpointError, match=WEIGHTS) as caught:
        checkpoint_from_package(package, tmp_path / "pulled")
    assert expected_message in str(caught.value)
    assert bool(mapped) == (name in ONLY_IN_THE_NUMBERS)
    assert len(str(caught.value)) < 600
    assert {path.name for path in tmp_path.iterdir()} == {"package"}


@pytest.mark.parametrize("name", HANDMADE)
def test_inspecting_handmade_weights_takes_no_memory(good, handmade, tmp_path, name):
    files, expected_message = handmade[name]
    for each, data in files.items():
        (tmp_path / each).write_bytes(data)
    expected = {
        each: (weight.dtype, tuple(weight.shape))
        for each, weight in weights_by_name(good[1].model).items()
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load_checked_tensors(tmp_path / WEIGHTS, expected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # what torch and safetensors allocate is not traced
    trained = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert peak < MODEL_AND_HEADER
    assert trained < 20 * MODEL_AND_HEADER
    assert expected_message in str(caught.value)


@pytest.fixture
def uploads(registries):
    """The upload of a new server, and the folder of its runs."""
    registry = registries()
    with TestClient(Starlette(routes=CheckpointTransfer(registry).routes())) as client:
        yield client, registry.root / "runs"


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def test_handmade_weights_that_are_uploaded_become_no_run(good, handmade, uploads):
    client, runs = uploads
    owner = {"x-owner": new_owner_key(), "x-name": "mine"}
    for name in HANDMADE:
        files, expected_message = handmade[name]
        answer = client.post(CHECKPOINT_PATH, content=zipped(files), headers=owner)
        assert answer.status_code == 400, name
        assert expected_message in answer.json()["error"]
        assert str(runs) not in answer.json()["error"]
        assert list(runs.iterdir()) == []
    # the same files unharmed are taken
    answer = client.post(CHECKPOINT_PATH, content=zipped(vouched(good[0])), headers=owner)
    assert answer.status_code == 200, answer.text
    assert len(list(runs.iterdir())) == 1


# Mutations


def flipped(content, chance):
    content = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 8, 100))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def flipped_in_the_header(content, chance):
    length = 8 + struct.unpack("<Q", content[:8])[0]
    return flipped(content[:length], chance) + content[length:]


def cut(content, chance):
    return content[: chance.randrange(len(content))]


def trained(content, chance):
    return content + chance.randbytes(chance.choice((1, 4, 100)))


def spliced(content, chance):
    start, stop = sorted(chance.randrange(len(content)) for _ in range(2))
    to = chance.randrange(len(content))
    return (
        content[:to]
        + content[start:stop]
        + content[to + (stop - start if chance.random() < 0.7 else 0) :]
    )


NUMBERS = (
    0,
    1,
    -1,
    4,
    7,
    8,
    13,
    416,
    2**31,
    2**32 - 1,
    2**53,
    2**62,
    2**63,
    2**64 - 1,
    10**30,
    0.5,
    13.0,
    True,
    None,
    "8",
    [8],
    {},
)


def edited(content, chance):
    """Return a JSON header with one entry changed, swapped, renamed, removed or added."""
    header, data = split(content)
    name, other = chance.sample(list(header), 2)
    entry = dict(header[name])
    what = chance.randrange(7)
    if what == 0:
        at = chance.randrange(len(entry["shape"]) or 1)
        entry["shape"] = [*entry["shape"][:at], chance.choice(NUMBERS), *entry["shape"][at + 1 :]]
    elif what == 1:
        at = chance.randrange(2)
        near = entry["data_offsets"][at] + chance.choice((-416, -4, -1, 1, 4, 416))
        entry["data_offsets"] = [
            chance.choice((near, *NUMBERS)) if n == at else old
            for n, old in enumerate(entry["data_offsets"])
        ]
    elif what == 2:
        entry["dtype"] = chance.choice(
            ("F32", "I32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "", None, ["F32"])
        )
    # a file that is as good, where both have the same shape: their numbers have changed places
    elif what == 3:
        entry["data_offsets"], header[other] = (
            header[other]["data_offsets"],
            header[other] | {"data_offsets": entry["data_offsets"]},
        )
    elif what == 4:
        header[chance.choice((name.upper(), name + " ", "\u0000", "__metadata__", other))] = (
            header.pop(name)
        )
        return join(header, data)
    elif what == 5:
        entry[chance.choice(("dtype", "shape", "extra"))] = chance.choice(NUMBERS)
    else:  # as good as before: other tools write metadata, other orders, and blanks
        shuffled = chance.sample(list(header.items()), len(header))
        return join(
            json.dumps(
                dict(shuffled) | {"__metadata__": {"format": "pt"}}, indent=chance.choice((None, 1))
            ).encode()
            + b"  ",
            data,
        )
    return join(header | {name: entry}, data)


def rewritten(content, chance):
    """Replace the numbers, some by odd ones, and keep the header."""
    header, data = split(content)
    at = 4 * chance.randrange(len(data) // 4)
    value = chance.choice(
        (0.0, -0.0, 1.0, 1e-45, 3.4e38, -1e30, float("nan"), float("inf"), float("-inf"))
    )
    return join(header, data[:at] + struct.pack("<f", value) + data[at + 4 :])


MUTATIONS = (flipped, flipped_in_the_header, cut, trained, spliced, edited, edited, rewritten)


def meaning(content):
    """Parse a safetensors file by hand: for each tensor its type, shape and bytes."""
    header, data = split(content)
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def contents(tensors):
    """Return type, shape and bytes of each tensor."""
    names = {torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}
    return {
        name: (names[each.dtype], list(each.shape), each.detach().numpy().tobytes())
        for name, each in tensors.items()
    }


@repeat_counts(200, 3000)
def test_mutated_weights_are_rejected_or_loaded_exactly(good, tmp_path, monkeypatch, count):
    """With the checksums of the valid file, only that file is loaded. Without checksums, the loaded
    tensors equal those of the file, have the shapes of the settings, and are finite.
    """
    files, trainer = good
    # of the same settings, again and again: all its weights are replaced each time
    build = cache(checkpoint.build_model)
    build(trainer.config)
    monkeypatch.setattr(checkpoint, "build_model", build)
    monkeypatch.setattr(checkpoint, "expected_tensors", cache(checkpoint.expected_tensors))
    config = json.loads(files["config.json"])
    folders = {}
    for name, sums in (("summed", config["sha256"]), ("unsummed", {})):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        (folders[name] / "config.json").write_text(json.dumps(config | {"sha256": sums}))
        (folders[name] / WEIGHTS).write_bytes(files[WEIGHTS])
        assert contents(weights_by_name(load_model(folders[name])[1])) == meaning(files[WEIGHTS])
    chance = random.Random(count)
    used = dict.fromkeys(folders, 0)
    for number in range(count):
        mutated = chance.choice(MUTATIONS)(files[WEIGHTS], chance)
        name = "summed" if number % 3 == 0 else "unsummed"
        (folders[name] / WEIGHTS).write_bytes(mutated)
        if is_rejected(WEIGHTS, load_model, folders[name]):
            continue
        tensors = weights_by_name(build(trainer.config))
        assert contents(tensors) == meaning(mutated), (
            f"mutation {number} was loaded with other values than those of the file"
        )
        assert all(tensor.isfinite().all() for tensor in tensors.values())
        assert name == "unsummed" or mutated == files[WEIGHTS]
        used[name] += 1
    assert count / 20 < used["unsummed"] < count / 2  # some are as good as the first one


@repeat_counts(100, 5_000)
def test_mutated_training_states_are_rejected_or_restored_exactly(good, tmp_path, count):
    files, _ = good
    trainer = Trainer(tiny_config())
    (tmp_path / WEIGHTS).write_bytes(files[WEIGHTS])
    chance, used = random.Random(count), 0
    for number in range(count):
        mutated = chance.choice(MUTATIONS)(files[STATE], chance)
        (tmp_path / STATE).write_bytes(mutated)
        if not is_rejected(
            STATE, restore_trainer, trainer, tmp_path / WEIGHTS, tmp_path / STATE, STEPS, "cpu"
        ):
            result, message = (
                # torch's have bytes of no use
                {
                    name: content
                    for name, content in each.items()
                    if not name.startswith("generator.")
                }
                for each in (contents(trainer.state_dict()), meaning(mutated))
            )
            assert result == message, (
                f"mutation {number} was restored with other values than those of the file"
            )
            used += 1
    assert used > count / 20


def test_the_upload_check_receives_the_uploaded_file(good, tmp_path):
    """Uploads and pulls share the check: it accepts valid files and rejects the others."""
    files, _ = good

    def check(files):
        for each, data in files.items():
            (tmp_path / each).write_bytes(data)
        return Inspector().validate(tmp_path)

    assert check(vouched(files)) == {"step": STEPS, "resumable": True}
    for name in (WEIGHTS, STATE):
        header, data = split(files[name])
        with pytest.raises(CheckpointError, match=name):
            check(vouched(files | {name: join(moved(header, 8), bytes(8) + data)}))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        check(files | {WEIGHTS: first_number(0.5)(*split(files[WEIGHTS]))})


SIZES = ["[1e999]", "[NaN]", '["x"]', "[" * 500 + "]" * 500, "null", "[" + "9" * 5000 + "]"]


@pytest.mark.parametrize("shape", SIZES, ids=lambda shape: shape[:8])
def test_pretrained_weights_of_invalid_sizes_are_rejected(tmp_path, shape):
    path = tmp_path / WEIGHTS
    path.write_bytes(
        join(
            f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 4]}}}}'.encode(),
            bytes(4),
        )
    )
    with pytest.raises(UserError, match="is not a complete safetensors file"):
        _parameter_count(path, "ada/x")
