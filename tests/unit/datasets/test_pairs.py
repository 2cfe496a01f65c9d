import hashlib
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from playground.datasets.pair_builder import read_pairs, validate_vocabulary
from playground.datasets.pairs import DatasetError, DatasetNotFoundError
from playground.datasets.report import summarize
from playground.datasets.storage import datasets_dir, load_metadata, store
from playground.tasks import EOS
from playground.tasks.held_out import build_held_out_set, is_held_out, sample_training_batch
from playground.training.run_config import RunConfig
from tests.support.app_server import ROOT

words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=4).filter(
    lambda word: word not in ("PAD", "SOS", "EOS") and len(word.split()) == 1
)
pairs = st.lists(
    st.tuples(st.lists(words, min_size=1, max_size=5), st.lists(words, min_size=1, max_size=5)),
    min_size=1,
    max_size=30,
)


def rows_of(fields, words=None):
    """Build a dataset from lists of fields, without a minimum number of rows."""
    return read_pairs(lambda: enumerate(fields, start=1), words)


def numbers(n=400, length=3):
    """Return distinct rows: numbers in words and in digits."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return [
        (" ".join(names[int(d)] for d in f"{i:0{length}d}"), " ".join(f"{i:0{length}d}"[::-1]))
        for i in range(n)
    ]


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    rows = rows_of(numbers())
    store(rows)
    return rows


def task_of(rows):
    return RunConfig.from_flat(rows.task_settings()).task.load()


@given(pairs)
def test_accepted_rows_are_returned_unchanged_each_source_once(lines):
    fields = [(" ".join(source), " ".join(target)) for source, target in lines]
    try:
        rows = rows_of(fields, words=True)
    except DatasetError as error:
        if "held out" not in str(error):
            raise
        return
    first = {}
    for source, target in lines:
        first.setdefault(tuple(source), target)
    assert [(tuple(s), t) for s, t in rows.preview(10**6)] == list(first.items())
    assert len(rows) + rows.duplicates + rows.conflicts == len(lines)
    assert rows.conflicts == sum(first[tuple(s)] != t for s, t in lines)
    assert list(rows.vocabulary) == sorted(
        {symbol for line in lines for side in line for symbol in side}
    )


@given(pairs)
def test_the_held_out_rows_are_those_that_the_hash_of_their_symbols_names(lines):
    fields = [(" ".join(source), " ".join(target)) for source, target in lines] + numbers(40)
    try:
        rows = rows_of(fields, words=True)
    except DatasetError as error:  # none of so few is held out
        rows = error.dataset
    expected = 0
    for source, _ in rows.preview(10**6):
        digests = [hashlib.sha256(symbol.encode()).digest() for symbol in source]
        marks = torch.tensor(
            [[int.from_bytes(digest[:8], "little", signed=True) for digest in digests]]
        )
        expected += bool(is_held_out(marks, torch.tensor([len(source)])))
    assert rows.count_held_out() == expected


def test_a_source_stays_on_its_side_when_other_rows_bring_other_symbols(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    few, held = numbers(300), []
    for fields in (few, [("aardvark", "first in the alphabet"), *few]):
        rows = rows_of(fields)
        store(rows)
        task, settings = task_of(rows), rows.task_settings()
        batch = build_held_out_set(task, 1000, settings["min_length"], settings["max_length"]).batch
        held.append(
            {" ".join(task.vocabulary.decode(row)) for row in batch.source_BS.tolist()}
            - {"aardvark"}
        )
    assert held[0] == held[1]
    assert 5 < len(held[0]) < 40


def test_symbols_are_words_only_if_an_example_has_inner_spaces():
    compact = rows_of([(f" {a}{b}x ", f"{b}{a}") for a in "abcdefghij" for b in "abcdefghij"])
    assert compact.preview(1) == [(["a", "a", "x"], ["a", "a"])]
    assert rows_of([(a, b) for a, b in numbers(50)]).preview(1) == [(["zero"] * 3, ["0", "0", "0"])]
    assert rows_of([(a.replace(" ", ""), b) for a, b in numbers(99)], words=True).preview(1) == [
        (["zerozerozero"], ["0", "0", "0"])
    ]
    assert rows_of(numbers(50), words=False).preview(1) == [(list("zerozerozero"), ["0", "0", "0"])]


def test_unusable_rows_are_counted_and_the_first_five_named():
    unusable = {
        7: ("a\x00b", "c"),
        11: "has no separator",
        20: ("", "x"),
        21: ("x", "  "),
        22: ("x" * 200, "y"),
        30: ("x", "PAD"),
        33: ("a \ud800", "b"),
    }
    fields = [unusable.get(number, (f"a b c d{number}", f"w{number % 7}")) for number in range(99)]
    dataset = read_pairs(lambda: enumerate(fields), None)
    assert len(dataset) == 99 - len(unusable)
    assert dataset.report.n_skipped == len(unusable)
    assert dataset.report.skipped == [
        "row 7 has the control character U+0000",
        "row 11 has no separator",
        "row 20 has no source",
        "row 21 has no target",
        f"row 22 has an invalid token: {'x' * 40!r} is the start of a token of 200 characters; "
        "1 to 40 are accepted",
    ]


def test_mostly_unusable_rows_are_an_error_with_the_usable_ones():
    rows = [("a", "b"), *[("x", "")] * 7]
    with pytest.raises(DatasetError) as caught:
        rows_of(rows)
    assert str(caught.value).startswith("7 of 8 rows are unusable: row 2 has no target; row 3")
    assert str(caught.value).endswith("; and 2 more")
    assert len(caught.value.dataset) == 1


@pytest.mark.parametrize(
    "token",
    ["\u200b", "\u200d", "\u200f", "\u00ad", "\u0301", "\U0001fae8", "\ue000", "\u202e", "\ufeff"],
)
def test_every_character_but_controls_and_surrogates_is_a_token(token):
    rows = rows_of([(f"{a}{token}", f"{token}{b}") for a, b in numbers(200)], words=False)
    assert token in rows.vocabulary
    assert validate_vocabulary(" ".join(rows.vocabulary)) == rows.vocabulary


def test_the_longest_sequences_have_128_tokens():
    longest = [(" ".join(["x"] * 128), " ".join(["y"] * 128)), *numbers(40)]
    rows = rows_of(longest)
    assert (max(rows.source_lengths), max(rows.target_lengths)) == (128, 128)
    for name, pair in (("source", ("x" * 129, "y")), ("target", ("x", "y" * 129))):
        skipped = rows_of([*numbers(40), pair], words=False).report.skipped
        assert skipped == [f"row 41 has a {name} of 129 tokens, above 128"]


def test_too_many_symbols_and_rows_too_few_to_split_are_rejected():
    with pytest.raises(DatasetError, match="more than 512 different tokens, from row 512"):
        rows_of([(f"w{number} a", "a") for number in range(600)])
    with pytest.raises(
        DatasetError, match=r"none of these 3 distinct pairs are held out.*add more pairs"
    ):
        rows_of([("a", "b"), ("b", "c"), ("c", "d"), ("a", "b")])
    with pytest.raises(DatasetError, match="the only distinct pair is not held out"):
        rows_of([("a", "b")])
    with pytest.raises(DatasetError, match="the dataset is empty"):
        rows_of([])


def test_duplicates_and_contradictions_are_reported_with_their_lines():
    rows = rows_of(
        [*numbers(100), numbers(1)[0], ("zero zero one", "9 9 9"), ("zero zero one", "8")]
    )
    assert (len(rows), rows.duplicates, rows.conflicts, rows.conflict_lines) == (
        100,
        1,
        2,
        (102, 103),
    )
    result = " ".join(summarize(rows))
    assert "1 pair was a duplicate and was left out" in result
    assert (
        "2 pairs had another target than an earlier pair with the same source (lines 102, 103); "
        "the first target is used" in result
    )
    assert rows.preview(2)[1] == (["zero", "zero", "one"], ["1", "0", "0"])


def test_the_content_is_that_of_the_rows_and_not_of_the_file():
    rows = rows_of(numbers())
    assert rows.sha256 == rows_of([(f"  {a} ", b.replace(" ", "  ")) for a, b in numbers()]).sha256
    assert rows.sha256 == rows_of([*numbers(), *numbers(3)]).sha256
    assert rows.sha256 != rows_of(numbers()[::-1]).sha256
    assert rows.sha256 != rows_of([(a, b.replace("9", "N")) for a, b in numbers()]).sha256


def test_reading_rows_and_their_settings_loads_no_torch():
    code = (
        "import sys; from playground.datasets.sources import read_text; "
        "from playground.datasets.storage import to_files; "
        "from playground.training.run_config import RunConfig; "
        "rows = read_text(''.join(f'{i:03d}\\t{i}\\n' for i in range(200))); "
        "RunConfig.from_flat(rows.task_settings()); to_files(rows);"
        "sys.exit('torch' in sys.modules or 'datasets' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# The task


def test_every_row_has_its_own_target(stored):
    task = task_of(stored)
    for source, target in stored.preview(400):
        assert (
            task.vocabulary.decode(task.target_for(task.vocabulary.encode(" ".join(source))))
            == target
        )
    assert task.target_for(task.vocabulary.encode("one one")) is None
    sequence_BL = torch.tensor(
        [task.vocabulary.encode("one two three"), task.vocabulary.encode("nine nine nine")]
    )
    answer_BL, lengths_B = task.target(sequence_BL, torch.tensor([3, 3]))
    assert lengths_B.tolist() == [3, 0]
    assert task.vocabulary.decode(answer_BL[0].tolist()) == ["3", "2", "1"]
    example_B1 = torch.tensor([task.vocabulary.encode(task.example_source())])
    row_B = task.table.lookup(example_B1, torch.tensor([3]))
    assert task.table.held_out_N[row_B].tolist() == [True]  # others may see it


def test_training_rows_are_uniform_and_never_held_out(stored):
    task = task_of(stored)
    batch = sample_training_batch(task, 40_000, 3, 3, torch.Generator().manual_seed(0))
    counts = {tuple(row): 0 for row in batch.source_BS.tolist()}
    for row in batch.source_BS.tolist():
        counts[tuple(row)] += 1
    requested = build_held_out_set(task, 1000, 3, 3)
    held = {tuple(row) for row in requested.batch.source_BS.tolist()}
    assert batch.loss_weight_B.min() == 1
    assert not held & set(counts)
    assert (
        len(held)
        == len(requested.lengths_B)
        == requested.num_available[3]
        == stored.count_held_out()
    )
    assert len(held) + len(counts) == 400
    assert min(counts.values()) > 60
    for source, target in zip(
        requested.batch.source_BS.tolist(), requested.batch.labels_BT.tolist(), strict=True
    ):
        words = task.vocabulary.decode(source)
        assert (words, task.vocabulary.decode(target)) in stored.preview(400)
        assert target[3] == EOS
    repeated = sample_training_batch(task, 40_000, 3, 3, torch.Generator().manual_seed(0))
    assert torch.equal(repeated.target_BT, batch.target_BT)


def test_pairs_of_other_lengths_are_dropped_and_too_few_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    rows = rows_of([*numbers(99, 2), *numbers(400)], words=True)
    store(rows)
    run = RunConfig.from_flat(rows.task_settings())
    assert (run.task.min_length, run.task.max_length, run.model.max_positions) == (2, 3, 4)
    batch = sample_training_batch(run.task.load(), 500, 2, 2, torch.Generator().manual_seed(0))
    assert batch.source_BS.shape == (500, 3)
    assert (batch.source_BS == EOS).float().argmax(1).unique().tolist() == [2]
    assert set(build_held_out_set(run.task.load(), 50, 2, 4).num_available) == {2, 3, 4}
    assert build_held_out_set(run.task.load(), 50, 2, 4).num_available[4] == 0
    with pytest.raises(
        DatasetError, match="lengths 1 to 1 have 0 training pairs and 0 held-out pairs"
    ):
        run.task.load().check_lengths(1, 1)


def test_a_missing_dataset_is_named_with_instructions(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "elsewhere"))
    task = task_of(stored)
    assert task.vocabulary.encode("nine 9") == [
        task.vocabulary.token_ids["nine"],
        task.vocabulary.token_ids["9"],
    ]
    assert task.target_for([3, 4]) is None
    with pytest.raises(
        DatasetNotFoundError,
        match=rf"{stored.sha256[:12]}…\) is not stored here; add it with `python -m playground "
        r"dataset FILE`",
    ):
        task.check_lengths(3, 3)
    store(stored)
    task.check_lengths(3, 3)


@pytest.mark.parametrize(
    "harm",
    [lambda data: data[:-5], lambda data: data[:-1] + b"\x01", lambda data: data + b"x", len],
    ids=["cut", "changed", "grown", "no tensors"],
)
def test_rows_with_another_hash_are_rejected(stored, harm):
    path = datasets_dir() / stored.sha256 / "rows.safetensors"
    path.write_bytes(bytes(harm(path.read_bytes())))
    with pytest.raises(DatasetError, match=r"is damaged.* add it again"):
        task_of(stored).check_lengths(3, 3)
    store(stored)  # mends it
    task_of(stored).check_lengths(3, 3)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"vocabulary": ["a", "a"]}', b'{"vocabulary": ["a"], "rows": -1}']
)
def test_damaged_metadata_is_rejected(stored, content):
    (datasets_dir() / stored.sha256 / "rows.json").write_bytes(content)
    with pytest.raises(DatasetError, match="is damaged"):
        load_metadata(stored.sha256)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a  b", "a a", "a\tb", "x PAD", " a", "a\x7f", "a\u2028b", "y" * 41),
        " ".join(map(str, range(513))),
    ],
)
def test_a_vocabulary_from_elsewhere_is_checked(text):
    with pytest.raises(DatasetError):
        validate_vocabulary(text)
