"""Small Parquet files that would expand to gigabytes."""

import subprocess
import sys

import pyarrow
import pytest

from playground.datasets.pairs import DatasetError
from playground.datasets.sources import ReadOptions, read_bytes
from tests.support.hub_datasets import as_parquet

MAX_MB = 300
READ = """
import re, sys
from pathlib import Path
import pyarrow.parquet
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import read_bytes

def peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

before = peak_mb()
try:
    read_bytes(sys.stdin.buffer.read(), "rows.parquet")
except DatasetError as error:
    print(f"{peak_mb() - before:.0f} MB: {error}")
"""


def repeated(text, n):
    indices = pyarrow.array([0] * n, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([text]))


def long_texts():
    return {"source": repeated("x" * 1_000_000, 20_000), "target": ["y"] * 20_000}


def long_nested_texts():
    texts = [repeated("x" * 500_000, 20_000), repeated("y", 20_000)]
    return {"pair": pyarrow.StructArray.from_arrays(texts, ["source", "target"])}


def many_words():
    words = repeated("x", 15_000_000).cast("string")
    return {"source": pyarrow.ListArray.from_arrays([0, len(words)], words), "target": ["y"]}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
@pytest.mark.parametrize("columns", [long_texts, long_nested_texts, many_words])
def test_a_file_that_expands_to_gigabytes_is_refused(columns):
    data = as_parquet(columns(), compression="zstd")
    assert len(data) < 10_000
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, input=data, capture_output=True, check=True)
    memory, _, message = done.stdout.decode().partition(" MB: the Parquet file has more than ")
    assert "MB of these columns" in message
    assert int(memory) < MAX_MB


def test_a_file_whose_statistics_are_damaged_does_not_end_the_process():
    data = as_parquet({"source": ["a"] * 9, "target": ["b"] * 9})
    optional, required = b"%\x02\x18\x06target", b"%\x00\x18\x06target"  # in the schema
    assert data.count(optional) == 1
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, input=data.replace(optional, required), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"the Parquet file is damaged; write it again" in done.stdout


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (pyarrow.array([10**9] * 9, pyarrow.int32()), pyarrow.date32()),
        (pyarrow.array([2**55] * 9), pyarrow.timestamp("ms")),
        (pyarrow.array([2**40] * 9), pyarrow.timestamp("us", tz="Mars/Phobos")),
        (pyarrow.array([b"\xff"] * 9), pyarrow.string()),
    ],
    ids=["date", "time", "zone", "text"],
)
def test_values_without_a_text_are_refused_unless_not_read(numbers, kind):
    column = pyarrow.Array.from_buffers(kind, len(numbers), numbers.buffers())
    data = as_parquet({"source": ["a"] * 9, "target": ["b"] * 9, "other": column})
    with pytest.raises(DatasetError, match="values that cannot be read, such as"):
        read_bytes(data, "x.parquet")
    with pytest.raises(DatasetError, match="the only distinct pair is"):
        read_bytes(data, "x.parquet", ReadOptions(columns=("source", "target")))


def test_missing_values_and_columns_have_limits():
    empty = pyarrow.array([[None] * 3000] * 4000, pyarrow.list_(pyarrow.int8()))
    with pytest.raises(DatasetError, match="more than 10,000,000 values"):
        read_bytes(as_parquet({"source": ["a"] * 4000, "target": empty}), "x.parquet")
    with pytest.raises(DatasetError, match="more than 1,000 columns"):
        read_bytes(as_parquet({f"c{n}": ["a"] for n in range(1500)}), "x.parquet")
