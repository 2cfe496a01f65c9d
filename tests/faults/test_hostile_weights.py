"""Hostile weight files, from an upload or a repository on the Hub.

The author of a file also wrote its checksums, so config.json proves nothing. A file that differs
from the settings is rejected before it is mapped or allocated.
"""

import hashlib
import json
import random
import resource
import struct
import tracemalloc
from functools import cache

import pytest
import safetensors.torch
import torch

from playground.checkpoints import checkpoint
from playground.checkpoints.checkpoint import (
    load_model,
    restore_trainer,
    save_checkpoint,
    weights_by_name,
)
from playground.checkpoints.manifest import CheckpointError
from playground.runs.inspector_process import validate_checkpoint
from playground.training.trainer import Trainer
from tests.support.small_runs import repeat_counts, tiny_config

WEIGHTS, STATE = "model.safetensors", "training.safetensors"
MODEL_AND_HEADER = 2_000_000  # more than the bytes that reading the valid file takes
STEPS = 3


@pytest.fixture(scope="module")
def valid_checkpoint(tmp_path_factory):
    """Return the files of a valid checkpoint by name, and the trainer that wrote them."""
    trainer = Trainer(tiny_config())
    metrics = [trainer.train_step() for _ in range(STEPS)]
    folder = tmp_path_factory.mktemp("good") / "checkpoint"
    save_checkpoint(folder, trainer, metrics)
    return {path.name: path.read_bytes() for path in folder.iterdir()}, trainer


def is_rejected(name, read, *arguments):
    """Return whether reading fails with an error that names the file."""
    try:
        read(*arguments)
    except CheckpointError as error:
        return name in str(error)
    return False


def split(content):
    """Return the header and the data of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(header, data, length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def with_checksums(files):
    """Return the files with valid checksums in config.json, as an author would write them."""
    sums = {name: hashlib.sha256(files[name]).hexdigest() for name in (WEIGHTS, STATE)}
    config = json.loads(files["config.json"]) | {"sha256": sums}
    return files | {"config.json": json.dumps(config).encode()}


# Handcrafted files. Each function gets the header and the data of a valid file; output.weight has
# 13 x 8 numbers in 416 bytes.


def set_first_number(value):
    return lambda header, data: join(header, struct.pack("<f", value) + data[4:])


def change_entry(**changes):
    return lambda header, data: join(
        header | {"output_proj.weight": header["output_proj.weight"] | changes}, data
    )


def overlap_tensors(header, data):
    first, second = [name for name in header if name.endswith("norm.bias")][:2]
    return join(header | {first: header[second]}, data)


def shift_offsets(header, n_bytes):
    return {
        name: entry | {"data_offsets": [offset + n_bytes for offset in entry["data_offsets"]]}
        for name, entry in header.items()
    }


def add_empty_huge_tensor(header, data):
    entry = {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [len(data), len(data)]}
    return join(header | {"payload": entry}, data)


def many_tensors(header, data):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return join({f"t{n}": entry for n in range(200_000)}, b"")


def remove_tensor(header, data):
    last = max(header, key=lambda name: header[name]["data_offsets"])
    begin, _ = header[last]["data_offsets"]
    return join({name: entry for name, entry in header.items() if name != last}, data[:begin])


def add_tensor(header, data):
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    return join(header | {"payload": entry}, data + bytes(4))


HANDCRAFTED = {
    "NaN": (set_first_number(float("nan")), "holds NaN or infinity"),
    "infinite": (set_first_number(float("-inf")), "holds NaN or infinity"),
    "huge shape": (change_entry(shape=[2**40, 2**40]), "overflow computing buffer size"),
    "header of 90 MB": (
        lambda header, data: join(b'{"a": "' + b"x" * 90_000_000 + b'"}', data),
        "its header claims 90,000,009 bytes",
    ),
    "header of 16 EB": (
        lambda header, data: join(header, data, 2**64 - 1),
        "its header claims 18,446,744,073,709,551,615 bytes",
    ),
    "200,000 tensors": (many_tensors, "bytes"),
    "wrong type": (change_entry(dtype="F64"), "invalid shape, data type, or offset"),
    "overlapping": (overlap_tensors, "invalid offset for tensor"),
    "a gap": (
        lambda header, data: join(shift_offsets(header, 64), bytes(64) + data),
        "invalid offset for tensor",
    ),
    "trailing bytes": (
        lambda header, data: join(header, data + bytes(64)),
        "file not fully covered",
    ),
    "negative offsets": (change_entry(data_offsets=[-416, 0]), "expected usize"),
    "reversed offsets": (change_entry(data_offsets=[416, 0]), "invalid offset for tensor"),
    "no JSON": (lambda header, data: join(b"\x80\x04a pickle", data), "invalid UTF-8 in header"),
    "missing tensor": (remove_tensor, "lacks tensor"),
    "unexpected tensor": (add_tensor, "holds the unexpected tensor 'payload'"),
    "empty and huge shape": (add_empty_huge_tensor, "holds the unexpected tensor 'payload'"),
    "cut off": (lambda header, data: join(header, data[:-4]), "file not fully covered"),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", HANDCRAFTED)
def test_handcrafted_weights_are_rejected_unmapped_in_little_memory(
    valid_checkpoint, tmp_path, monkeypatch, name
):
    mapped, load = [], safetensors.torch.load_file
    monkeypatch.setattr(
        safetensors.torch, "load_file", lambda path: mapped.append(path) or load(path)
    )
    create_file, expected_message = HANDCRAFTED[name]
    (tmp_path / WEIGHTS).write_bytes(create_file(*split(valid_checkpoint[0][WEIGHTS])))
    expected = checkpoint.expected_tensors(valid_checkpoint[1].config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as error:
            checkpoint.load_checked_tensors(tmp_path / WEIGHTS, expected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # tracemalloc does not trace allocations of torch and safetensors
    resident_growth = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert peak < MODEL_AND_HEADER
    assert resident_growth < 20 * MODEL_AND_HEADER
    assert expected_message in str(error.value)
    assert len(str(error.value)) < 600
    assert bool(mapped) == (name in ("NaN", "infinite"))  # the header of these is valid


# Mutations


def flip_bits(content, rng):
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 100))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def flip_header_bits(content, rng):
    length = 8 + struct.unpack("<Q", content[:8])[0]
    return flip_bits(content[:length], rng) + content[length:]


def truncate(content, rng):
    return content[: rng.randrange(len(content))]


NUMBERS = (0, -1, 4, 13, 2**32 - 1, 2**62, 2**64 - 1, 10**30, 0.5, True, None, "8", [8], {})


def edit_header(content, rng):
    """Return a JSON header with one entry changed, swapped, renamed, removed or added."""
    header, data = split(content)
    name, other = rng.sample(list(header), 2)
    entry = dict(header[name])
    kind_of_edit = rng.randrange(7)
    if kind_of_edit == 0:
        index = rng.randrange(len(entry["shape"]) or 1)
        entry["shape"] = [*entry["shape"]]
        entry["shape"][index : index + 1] = [rng.choice(NUMBERS)]
    elif kind_of_edit == 1:
        index, entry["data_offsets"] = rng.randrange(2), [*entry["data_offsets"]]
        near_offset = entry["data_offsets"][index] + rng.choice((-416, -4, -1, 1, 4, 416))
        entry["data_offsets"][index] = rng.choice((near_offset, *NUMBERS))
    elif kind_of_edit == 2:
        types = "F32", "I32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "", None, ["F32"]
        entry["dtype"] = rng.choice(types)
    # swaps two tensors; valid if both have the same shape
    elif kind_of_edit == 3:
        offsets, entry["data_offsets"] = entry["data_offsets"], header[other]["data_offsets"]
        header[other] = header[other] | {"data_offsets": offsets}
    elif kind_of_edit == 4:
        renamed = rng.choice((name.upper(), name + " ", "\u0000", "__metadata__", other))
        header[renamed] = header.pop(name)
        return join(header, data)
    elif kind_of_edit == 5:
        entry[rng.choice(("dtype", "shape", "extra"))] = rng.choice(NUMBERS)
    else:  # valid: other tools write metadata, another order, and spaces
        shuffled = dict(rng.sample(list(header.items()), len(header)))
        shuffled["__metadata__"] = {"format": "pt"}
        return join(json.dumps(shuffled, indent=rng.choice((None, 1))).encode() + b"  ", data)
    return join(header | {name: entry}, data)


def change_number(content, rng):
    """Replace the numbers, some by odd ones, and keep the header."""
    header, data = split(content)
    offset = 4 * rng.randrange(len(data) // 4)
    value = rng.choice((0.0, -0.0, 1.0, 1e-45, 3.4e38, -1e30, *map(float, ("nan", "inf", "-inf"))))
    return join(header, data[:offset] + struct.pack("<f", value) + data[offset + 4 :])


MUTATIONS = (flip_bits, flip_header_bits, truncate, edit_header, edit_header, change_number)


def parse_tensors(content):
    """Parse a safetensors file by hand: for each tensor its type, shape and bytes."""
    header, data = split(content)
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def describe_tensors(tensors):
    """Return type, shape and bytes of each tensor."""
    names = {torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}
    return {
        name: (names[tensor.dtype], list(tensor.shape), tensor.detach().numpy().tobytes())
        for name, tensor in tensors.items()
    }


@repeat_counts(150, 3000)
def test_mutated_weights_are_rejected_or_loaded_exactly(
    valid_checkpoint, tmp_path, monkeypatch, count
):
    """With the checksums of the valid file, only that file is loaded. Without checksums, the loaded
    tensors equal those of the file, have the shapes of the settings, and are finite.
    """
    files, trainer = valid_checkpoint
    # reuse one model: each load replaces all of its weights
    build = cache(checkpoint.build_model)
    build(trainer.config)
    monkeypatch.setattr(checkpoint, "build_model", build)
    monkeypatch.setattr(checkpoint, "expected_tensors", cache(checkpoint.expected_tensors))
    config = json.loads(files["config.json"])
    folders = {}
    for name, checksums in (("with checksums", config["sha256"]), ("without checksums", {})):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        (folders[name] / "config.json").write_text(json.dumps(config | {"sha256": checksums}))
        (folders[name] / WEIGHTS).write_bytes(files[WEIGHTS])
        assert describe_tensors(weights_by_name(load_model(folders[name])[1])) == parse_tensors(
            files[WEIGHTS]
        )
    rng = random.Random(count)
    n_loaded = dict.fromkeys(folders, 0)
    for number in range(count):
        mutated = rng.choice(MUTATIONS)(files[WEIGHTS], rng)
        name = "with checksums" if number % 3 == 0 else "without checksums"
        (folders[name] / WEIGHTS).write_bytes(mutated)
        if is_rejected(WEIGHTS, load_model, folders[name]):
            continue
        tensors = weights_by_name(build(trainer.config))
        assert describe_tensors(tensors) == parse_tensors(mutated), (
            f"mutation {number} was loaded with other values than those of the file"
        )
        assert all(tensor.isfinite().all() for tensor in tensors.values())
        assert name == "without checksums" or mutated == files[WEIGHTS]
        n_loaded[name] += 1
    assert count / 20 < n_loaded["without checksums"] < count / 2  # some mutations are valid


@repeat_counts(100, 5_000)
def test_mutated_training_states_are_rejected_or_restored_exactly(
    valid_checkpoint, tmp_path, count
):
    files, _ = valid_checkpoint
    trainer = Trainer(tiny_config())
    (tmp_path / WEIGHTS).write_bytes(files[WEIGHTS])
    rng, n_restored = random.Random(count), 0
    for number in range(count):
        mutated = rng.choice(MUTATIONS)(files[STATE], rng)
        (tmp_path / STATE).write_bytes(mutated)
        if not is_rejected(
            STATE, restore_trainer, trainer, tmp_path / WEIGHTS, tmp_path / STATE, STEPS, "cpu"
        ):
            actual, expected = describe_tensors(trainer.state_dict()), parse_tensors(mutated)
            for name in [*actual, *expected]:
                if name.startswith("generator."):  # the states of generators have unused bytes
                    actual.pop(name, None), expected.pop(name, None)
            assert actual == expected, (
                f"mutation {number} was restored with other values than those of the file"
            )
            n_restored += 1
    assert n_restored > count / 20


def test_upload_check_accepts_valid_files_only(valid_checkpoint, tmp_path):
    """Uploads and pulls share the check: it accepts valid files and rejects the others."""
    files, _ = valid_checkpoint

    def check(files):
        for file_name, data in files.items():
            (tmp_path / file_name).write_bytes(data)
        return validate_checkpoint(str(tmp_path))

    assert check(with_checksums(files)) == {"step": STEPS, "resumable": True}
    for name in (WEIGHTS, STATE):
        header, data = split(files[name])
        with pytest.raises(CheckpointError, match=name):
            check(with_checksums(files | {name: join(shift_offsets(header, 8), bytes(8) + data)}))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        check(files | {WEIGHTS: set_first_number(0.5)(*split(files[WEIGHTS]))})
