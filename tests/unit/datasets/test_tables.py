import csv
import datetime
import gzip
import io
import json
import random

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.datasets.json_tables import flatten
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import MAX_BYTES, ReadOptions, open_table, read_bytes, read_text
from playground.tasks import vocabulary
from tests.support.hub_datasets import as_parquet

PAIRS = [(f"{a} {b} x", f"x {b} {a}") for a in "abcdefghijkl" for b in "abcdefghijkl"]
NAMED = ReadOptions(columns=("source", "target"), split_on_spaces=True)


def write_lines(pairs, separator, end="\n", names=()):
    return "".join(f"{a}{separator}{b}{end}" for a, b in [*([names] if names else []), *pairs])


def write_csv(pairs, delimiter=",", names=("source", "target"), **dialect):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, **dialect)
    writer.writerows([names, *pairs] if names else pairs)
    return file.getvalue()


def write_json_lines(pairs):
    return "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs)


def read(data, name, options=NAMED):
    """Read pairs, also too few to hold one out; return the texts of source and target."""
    try:
        dataset = read_bytes(data, name, options)
    except DatasetError as error:
        if "held out" not in str(error):
            raise
        dataset = error.dataset
    return [(" ".join(a), " ".join(b)) for a, b in dataset.preview(len(dataset))]


words = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1, max_size=6
).filter(lambda word: word not in ("PAD", "SOS", "EOS"))
sequences = st.lists(words, min_size=1, max_size=4).map(" ".join)
any_pairs = st.lists(st.tuples(sequences, sequences), min_size=1, max_size=8)


def normalize(pairs):
    """Return what the reader gives: distinct sources in NFC."""
    by_source = {}
    for source, target in pairs:
        by_source.setdefault(vocabulary.normalize(source), vocabulary.normalize(target))
    return list(by_source.items())


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.csv", lambda pairs: write_csv(pairs).encode()),
        ("rows.csv", lambda pairs: write_csv(pairs, ";", quoting=csv.QUOTE_ALL).encode("utf-16")),
        ("rows.tsv", lambda pairs: write_csv(pairs, "\t", quoting=csv.QUOTE_ALL).encode()),
        ("rows.jsonl", lambda pairs: write_json_lines(pairs).encode("utf-8-sig")),
        ("rows.jsonl.gz", lambda pairs: gzip.compress(write_json_lines(pairs).encode())),
        (
            "rows.json",
            lambda pairs: json.dumps([{"source": a, "target": b} for a, b in pairs]).encode(),
        ),
        (
            "rows.parquet",
            lambda pairs: as_parquet(
                dict(zip(NAMED.columns, zip(*pairs, strict=True), strict=True))
            ),
        ),
    ],
    ids=["csv", "utf-16", "tsv", "jsonl", "gz", "json", "parquet"],
)
def test_written_pairs_are_read_unchanged(name, write):
    @given(any_pairs)
    def check(pairs):
        assert read(write(pairs), name) == normalize(pairs)

    check()


@pytest.mark.parametrize("separator", ["→", " => ", " -> ", "\t", ";", ", ", "  ", " | "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_lines_with_any_separator_and_line_end_are_pairs(separator, end):
    data = write_lines(PAIRS, separator, end).encode("utf-8-sig")
    assert read(data, "rows.txt", ReadOptions()) == PAIRS


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (write_lines(PAIRS, "\t", names=("src", "tgt")), "rows.tsv", ("tab", True)),
        (write_lines(PAIRS, "\t"), "rows.tsv", ("tab", False)),
        (write_lines(PAIRS, ","), "rows.csv", (",", False)),
        (write_lines(PAIRS, ",", names=("left", "right")), "rows.csv", (",", True)),
        ("sep=;\n" + write_lines(PAIRS, ";", names=("src", "tgt")), "rows.csv", (";", True)),
        (write_lines(PAIRS, ";", names=('"src, text"', '"tgt"')), "rows.csv", (";", True)),
        (write_lines(PAIRS, ";", names=('"left\nside"', '"tgt"')), "rows.csv", (";", True)),
        (write_lines(PAIRS, "|", names=("src", "tgt")), "rows.csv", ("|", True)),
        (write_lines(PAIRS, ",", ",\n", ("src", "tgt")), "rows.csv", (",", True)),
        (write_lines(PAIRS, ",", "\r", ("src", "tgt")), "rows.csv", (",", True)),
        (write_csv([(f"{a}, x", b) for a, b in PAIRS], "\t"), "rows.tsv", ("tab", True)),
        (write_lines([(f"{a}, b", b) for a, b in PAIRS], " → "), "", ("→", False)),
        (write_lines([(f"{n},5", f"{n}") for n in range(200)], "  "), "", ("two blanks", False)),
        (write_lines([(f"{n},5", f"{n},7") for n in range(200)], ";"), "x.csv", (";", False)),
        (write_lines([("Well, well", "Oh")] * 9, ";"), "rows.csv", (";", False)),
        (write_lines([(f"p{n} -> q", "true") for n in range(99)], "\t"), "a.tsv", ("tab", False)),
        (write_lines([(f"p{n}|q", "1") for n in range(99)], ","), "rows.csv", (",", False)),
        (write_lines([(f"{n},5", "x") for n in range(99)], ";"), "rows.csv", (";", False)),
        (write_lines([("word", "Wort"), *PAIRS], " → "), "", ("→", False)),
        (write_lines([("word", "Wort"), ("hi", "hallo")], "\t"), "", ("tab", False)),
        (
            write_lines([(f"{n:03d}", "x") for n in range(99)], ",", names=("A", "B")),
            "",
            (",", True),
        ),
        (write_lines([(f"{a}{b}", f"{b}") for a, b in PAIRS], ","), "rows.csv", (",", False)),
    ],
)
def test_separator_and_line_of_names_are_recognized(text, name, expected):
    table = open_table(text.encode(), name)
    assert (table.delimiter, table.has_names) == expected
    assert len(table.columns) == 2


def test_the_user_decides_about_the_line_of_names():
    data = write_lines(PAIRS, ",").encode()
    assert read(data, "rows.csv", ReadOptions(has_names=True)) == PAIRS[1:]
    data = write_lines(PAIRS, ",", names=("src", "tgt")).encode()
    assert read(data, "rows.csv", ReadOptions(has_names=False)) == [("src", "tgt"), *PAIRS]


def test_columns_of_a_table_without_names_are_numbered():
    data = "".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(PAIRS)).encode()
    with pytest.raises(DatasetError, match=r"3 columns \(column 1, column 2, column 3\)"):
        read(data, "rows.csv", ReadOptions())
    assert read(data, "rows.csv", ReadOptions(columns=("column 2", "column 3"))) == PAIRS


@pytest.mark.parametrize("text", ["0007", "+7", "true", "NA", "null", "nan", "7.50", "9" * 21])
@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.txt"])
def test_text_never_becomes_a_number(text, name):
    pairs = [(f"{text}{n}", text) for n in range(200)]
    assert read(write_csv(pairs, "\t").encode(), name, NAMED) == pairs


def test_numbers_and_constants_of_json_stay_as_written():
    lines = '{"source": %d, "target": [7.50, 12345678901234567890123, true, "0007"]}\n'
    data = "".join(lines % n for n in range(100)).encode()
    assert read(data, "x.jsonl")[0] == ("0", "7.50 12345678901234567890123 true 0007")


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (
            lambda a, b: {"id": 1, "translation": {"en": a, "de": b}},
            ("translation.en", "translation.de"),
        ),
        (lambda a, b: {"x": a.split(), "y": b.split(), "z": [1.5]}, ("x", "y")),
    ],
    ids=["nested", "lists"],
)
def test_nested_columns_and_lists_are_columns(row, columns):
    options = ReadOptions(columns=columns)
    rows = [row(a, b) for a, b in PAIRS]
    assert read("\n".join(map(json.dumps, rows)).encode(), "x.jsonl", options) == PAIRS
    assert read(json.dumps({"data": rows}).encode(), "x.json", options) == PAIRS
    assert read(as_parquet(pyarrow.Table.from_pylist(rows)), "x.parquet", options) == PAIRS


@pytest.mark.parametrize(
    ("keys", "roles"),
    [(("role", "content"), ("user", "assistant")), (("from", "value"), ("human", "gpt"))],
)
@pytest.mark.parametrize("begins", [[], ["answer"], ["system", "answer"]], ids=len)
def test_a_chat_gives_its_first_question_and_the_answer_to_it(keys, roles, begins):
    question, answer = roles
    rows = []
    for a, b in PAIRS:
        texts = [*((answer if each == "answer" else each, "Hello.") for each in begins)]
        texts += [(question, a), (answer, b), (question, "more"), (answer, "end")]
        rows.append({"messages": [dict(zip(keys, each, strict=True)) for each in texts]})
    expected = [f"messages.{each}" for each in (*roles, *("system",) * ("system" in begins))]
    for data, name in (
        ("\n".join(map(json.dumps, rows)).encode(), "x.jsonl"),
        (as_parquet(pyarrow.Table.from_pylist(rows)), "x.parquet"),
    ):
        assert [*open_table(data, name).columns] == expected
        columns = expected[:2] if "system" in begins else ()
        assert read(data, name, ReadOptions(columns=columns)) == PAIRS


@pytest.mark.parametrize(
    ("turns", "cells"),
    [
        ("assistant: hi, user: Q", {"m.user": "Q"}),
        ("user: Q1, user: Q2, assistant: A2", {"m.user": "Q2", "m.assistant": "A2"}),
        ("Assistant: hi, User: Q, Assistant: A", {"m.User": "Q", "m.Assistant": "A"}),
        ("user: Q, assistant: A, assistant: B", {"m.user": "Q", "m.assistant": "A"}),
        ("user: Q, tool: T, assistant: A", {"m.user": "Q", "m.tool": "T", "m.assistant": "A"}),
    ],
)
def test_an_answer_belongs_to_the_question_before_it(turns, cells):
    pairs = (turn.split(": ") for turn in turns.split(", "))
    messages = [{"role": role, "content": text} for role, text in pairs]
    assert flatten({"m": messages}) == cells


def test_two_columns_of_one_name_are_refused_and_named():
    for row, name in (
        ({"a": {"b": "X"}, "a.b": "Y"}, r"a\.b"),
        ({"m": [{"role": "user", "content": "x"}], "m.user": "y"}, r"m\.user"),
        ({"k" * 200 + "1": "x", "k" * 200 + "2": "y"}, "kkk"),
        ({"a\n": "x", "a\t": "y"}, r"a\?"),
    ):
        with pytest.raises(DatasetError, match=f"two columns {name}.*; rename one"):
            read_bytes(json.dumps([row]).encode(), "x.json")


@pytest.mark.parametrize("character", ["\n", "\x1b", "\x85", "\u2028", "\ud800"])
def test_names_of_columns_have_only_characters_that_can_be_printed(character):
    name = f"a{character}b"
    rows = [{name: a, "c": {name: b}} for a, b in PAIRS]
    files = [("\n".join(map(json.dumps, rows)).encode(), "x.jsonl", "c.a?b")]
    if character.isascii():
        table = pyarrow.Table.from_pylist(rows)
        files.append((as_parquet(table), "x.parquet", "c.a?b"))
        files.append((write_csv(PAIRS, names=(name, "target")).encode(), "x.csv", "target"))
    with_names = ReadOptions(has_names=True)
    for data, file_name, target in files:
        source = "a b" if (character, file_name) == ("\n", "x.csv") else "a?b"
        assert open_table(data, file_name, with_names).columns == (source, target)
        columns = (name if source == "a?b" else source, target)
        options = ReadOptions(columns=columns, has_names=True)
        assert read(data, file_name, options) == PAIRS


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "UTF-8"),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-32", "UTF-32"),
        ("latin-1", "Latin-1"),
        ("cp1252", "Latin-1"),
    ],
)
def test_encodings_are_recognized(encoding, expected):
    pairs = [(f"{a} é", b) for a, b in PAIRS]
    table = open_table(write_lines(pairs, "\t").encode(encoding), "rows.tsv")
    assert table.encoding == expected
    assert [cells for _, cells in table.rows(table.columns)] == [list(pair) for pair in pairs]


@pytest.mark.parametrize(
    ("extra", "expected_message"),
    [
        ("only one\n", "row 145 has no separator between source and target"),
        ("a,b,c\n", "row 145 has 3 columns; the others have 2"),
        ("a,\n", "row 145 has no target"),
        (",b\n", "row 145 has no source"),
        ('"a,b\n', "row 145 has a quotation mark that is not closed"),
        ("a\x00b,c\n", "row 145 has the control character U+0000"),
        ("a\x1fb,c\n", "row 145 has the control character U+001F"),
        (" ".join("a" * 129) + ",b\n", "row 145 has a source of 129 tokens, above 128"),
        ("y" * 41 + ",b\n", "row 145 has an invalid token"),
        ("a,PAD\n", "row 145 has an invalid token: PAD is the name of a special token"),
        ("a,b\u0301" + "\u0323\u0301" * 500 + "\n", "row 145 has more than 30 combining marks"),
        ("y" * 200_000 + ",b\n", "row 145 has an invalid token"),
        ('"' + "y" * 200_000 + '",b\n', "row 145 has no separator"),
    ],
)
def test_an_unusable_row_is_left_out_and_named(extra, expected_message):
    data = (write_lines(PAIRS, ",") + extra + "z z,z\n").encode()
    dataset = read_bytes(data, "rows.csv")
    assert len(dataset) == len(PAIRS) + 1
    assert dataset.report.n_skipped == 1
    assert dataset.report.skipped[0].startswith(expected_message)


def test_the_majority_of_rows_decides_the_separator():
    text = write_lines(PAIRS, " → ") + "stray\ttab\n"
    dataset = read_text(text)
    assert (len(dataset), dataset.report.n_skipped) == (len(PAIRS), 1)
    assert dataset.report.delimiter == "→"


def test_quoted_cells_may_span_lines_and_stray_quotes_do_not():
    data = write_csv([("first\nline", "a,b"), *PAIRS], quoting=csv.QUOTE_ALL).encode()
    assert read(data, "rows.csv")[0] == ("first line", "a,b")
    stray = [f'"{a},{b}' if n in (7, 19) else f"{a},{b}" for n, (a, b) in enumerate(PAIRS)]
    dataset = read_bytes("\n".join(["src,tgt", *stray]).encode(), "rows.csv")
    assert (len(dataset), dataset.report.n_skipped) == (len(PAIRS) - 2, 2)


def test_a_comment_before_the_names_is_left_out_and_named():
    data = ("# exported 2024\n" + write_csv(PAIRS)).encode()
    dataset = read_bytes(data, "rows.csv")
    assert len(dataset) == len(PAIRS)
    assert list(dataset.report.skipped) == ["row 1 has no separator between source and target"]


@pytest.mark.parametrize(
    ("data", "name", "expected_message"),
    [
        (b"PK\x03\x04" + b"\0" * 99, "x.xlsx", "a workbook or an archive.*save it as CSV"),
        (b"\xd0\xcf\x11\xe0" + b"\0" * 99, "x.xls", "a workbook or an archive"),
        (b"\x1f\x8b\x08\x00broken", "x.csv.gz", "the gzip file is damaged"),
        (gzip.compress(b"\0" * (MAX_BYTES + 1)), "x.gz", "decompressed file has 50.0 MB"),
        (b"PAR1 broken PAR1", "x.parquet", "the Parquet file is damaged"),
        (b"\xff\xfea", "x.txt", "begins like UTF-16 text, but is not"),
        (random.Random(0).randbytes(1000), "x.txt", "no text that can be read"),
        (b"[1, 2", "x.json", "cannot be read: expecting ',' delimiter in line 1"),
        (b"{}", "x.json", "no list of rows"),
        (b'[["a", "b"], ["c", "d"]]', "x.json", "no list of rows"),
        (b"[" * 100_000, "x.json", "nested too deeply"),
        (b'{"a":' * 100_000, "x.json", "nested too deeply"),
        (b"", "x.csv", "the dataset is empty"),
        (b"a\tb\n" * (MAX_BYTES // 4 + 1), "x.tsv", "the file has 50.0 MB; at most 50 MB"),
    ],
)
def test_an_unusable_file_has_a_reason(data, name, expected_message):
    with pytest.raises(DatasetError, match=expected_message):
        read_bytes(data, name)


@pytest.mark.parametrize(
    "data",
    [
        b"a" * 500_000,
        b" " * 500_000,
        b"a" + b" " * 400_000 + b"b",
        b"\t" * 500_000,
        b'a,"b\n' * 50_000,
        b'"' * 500_001,
        b'",' * 250_000,
        b"\n" * 500_000,
        ("→" * 100_000).encode(),
        ("a" + "\u0301\u0323" * 100_000 + "\tb\n").encode(),
        (b",".join(b"%d" % n for n in range(1000)) + b"\n") * 100,
        b"".join(b'{"k%d":1,"j%d":2}\n' % (n, n) for n in range(20_000)),
    ],
    ids=lambda data: repr(data[:8]),
)
@pytest.mark.parametrize("name", ["x.txt", "x.csv", "x.jsonl"])
def test_strange_shapes_of_files_end_with_a_sentence(data, name):
    """A parser with quadratic time would need minutes for these."""
    with pytest.raises(DatasetError):
        read_bytes(data, name)


@given(st.binary(max_size=300), st.sampled_from(["x.tsv", "x.csv", "x.json", "x.gz", "x"]))
def test_every_upload_is_accepted_or_rejected_with_a_message(data, name):
    try:
        read_bytes(data, name)
    except DatasetError as error:
        if not str(error):
            raise


def test_several_lists_of_rows_are_refused_and_named():
    content = {"train": [{"a": "b"}], "test": [{"a": "c"}] * 2}
    with pytest.raises(DatasetError, match=r"several lists of rows: train \(1\), test \(2\)"):
        read_bytes(json.dumps(content).encode(), "x.json")
    rows = [{"source": a, "target": b} for a, b in PAIRS]
    assert read(json.dumps({"errors": [], "data": rows}).encode(), "x.json") == PAIRS


def test_lines_of_json_may_end_with_commas_and_few_may_be_broken():
    lines = [json.dumps({"source": a, "target": b}) + "," for a, b in PAIRS]
    broken = "\n".join(["{'source': 1}", *lines])
    assert read(broken.encode(), "") == PAIRS
    with pytest.raises(DatasetError, match=r"this JSON cannot be read: .* in line 2"):
        read_text("\n".join('{"a": "b"' for _ in PAIRS))


def test_a_damaged_character_of_a_utf_8_file_is_named():
    data = write_lines([(f"{a} ß", b) for a, b in PAIRS], "\t").encode() + b"\xff\tx\n"
    with pytest.raises(DatasetError, match=r"line 145 has a damaged character \(byte 0xff\)"):
        read_bytes(data, "rows.tsv")
    with pytest.raises(DatasetError, match="no text that can be read"):
        read_bytes(b"\xe9\tx\n" * 9_000 + b"\x81\ty\n", "rows.tsv")


def test_delimiters_at_the_end_of_lines_are_no_columns():
    data = "src;tgt;n;;\n" + "".join(f"{a};{b};{n};;\n" for n, (a, b) in enumerate(PAIRS))
    assert open_table(data.encode(), "x.csv").columns == ("src", "tgt", "n")
    assert read(data.encode(), "x.csv", ReadOptions(columns=("src", "tgt"))) == PAIRS


def test_names_of_columns_have_a_limit_in_length_and_number():
    table = open_table(json.dumps([{"A" * 5000: {"k": "x"}}]).encode(), "x.json")
    assert max(map(len, table.columns)) == 200
    assert max(map(len, open_table(f"{'A' * 5000},b\n1,2\n3,2\n".encode(), "x.csv").columns)) == 200
    with pytest.raises(DatasetError, match="more than 1,000 columns"):
        open_table(json.dumps([{f"k{n}": "x" for n in range(2000)}]).encode(), "x.json")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "null"])
def test_a_json_number_that_is_none_is_a_missing_cell(constant):
    good = [json.dumps({"source": a, "target": b}) for a, b in PAIRS]
    bad = [f'{{"source": "a", "target": {constant}}}', f'{{"source": [{constant}], "target": "b"}}']
    dataset = read_bytes("\n".join([*bad, *good]).encode(), "x.jsonl")
    assert dataset.report.skipped == ["row 1 has no target", "row 2 has no source"]


def test_missing_numbers_and_dates_of_parquet():
    rows = {
        "source": [1.5, float("nan")] * 99,
        "target": [datetime.date(2026, 1, n % 28 + 1) for n in range(198)],
    }
    with pytest.raises(DatasetError) as caught:
        read_bytes(as_parquet(rows), "x.parquet", NAMED)
    assert "distinct pair" in str(caught.value)
    assert caught.value.dataset.report.n_skipped == 99
    assert caught.value.dataset.preview(1) == [(["1.5"], ["2026-01-01"])]
