"""Where rows come from: text, a file, a CSV, a dataset on the Hub, a Python function; and where they are kept.

Rows from all of these end up the same: checked by `tasks.rows.read_rows`, kept in a folder named by their content, and named by
that in the settings of a run. Nothing from elsewhere is executed, but for the function that the owner of this machine names on
the command line, and never on a hosted Space.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from playground.tasks.rows import LONGEST_FIELD, Rows, RowsError, origin_of, read_rows, rows_root
from playground.tasks.vocabulary import ALPHABET
from playground.training.files import write_folder

LARGEST = 50_000_000  # bytes of a file or a text, and characters taken from the Hub
FUNCTION_ROWS = 20_000  # sequences that a function is asked once
TRIES = 4  # times as many are drawn at most, where short lengths repeat
CSV = (".csv",)


def keep(rows: Rows, root: Path | None = None) -> str:
    """Keep rows on this machine, whole or not at all; their content's name, under which a run asks for them.

    Raises:
        OSError: as the system reports it; nothing half-written is left.
    """
    folder = (root or rows_root()) / rows.content
    files = rows.files()
    known = origin_of(rows.content) if not rows.origin and root is None else {}
    if known:  # the same rows were taken from the Hub before
        files = replace(rows, origin=known).files()
    if any(
        not (folder / name).is_file() or (folder / name).read_bytes() != data
        for name, data in files.items()
    ):
        write_folder(folder, files)
    return rows.content


def from_text(text: str, words: bool | None = None) -> Rows:
    """Rows of source, tab, target; empty lines count for nothing.

    Raises:
        RowsError: for what cannot be taken.
    """
    if len(text) > LARGEST:
        raise RowsError(f"the text has {len(text):,} characters; at most {LARGEST:,} are read")

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        for number, line in enumerate(io.StringIO(text, newline=None), start=1):
            if line.strip():
                yield number, line.rstrip("\n").split("\t")

    return read_rows(lines, words)


def from_csv(text: str, columns: Sequence[str] = (), words: bool | None = None) -> Rows:
    """Rows of a table with a line of names: two columns, named where there are more. Commas, semicolons or tabs part them.

    Raises:
        RowsError: for what cannot be taken.
    """
    if len(text) > LARGEST:
        raise RowsError(f"the table has {len(text):,} characters; at most {LARGEST:,} are read")
    head = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    try:
        names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])]
    except csv.Error as error:
        raise RowsError(
            f"the table's line of names cannot be read ({error}); save the table anew as CSV"
        ) from None
    places = [names.index(name) for name in chosen(names, columns)]

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        before, headed = 0, False
        try:
            for fields in reader:
                number, before = before + 1, reader.line_num
                if not headed or not any(field.strip() for field in fields):
                    headed = headed or any(field.strip() for field in fields)
                    continue
                # A cell that is missing is an empty one; line breaks and tabs in a cell are blanks.
                yield (
                    number,
                    [
                        " ".join(fields[at].split("\n")).replace("\r", " ")
                        if at < len(fields)
                        else ""
                        for at in places
                    ],
                )
        except csv.Error as error:
            raise RowsError(
                f"line {before + 1:,} is no line of a CSV file ({error}); save the table anew as CSV"
            ) from None

    return read_rows(lines, words)


def chosen(names: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """The two columns of sources and targets.

    Raises:
        RowsError: where they are not there, or not clear.
    """
    shown = ", ".join(name[:40] for name in names[:20]) or "none"
    if not columns and len(names) != 2:
        raise RowsError(
            f"there are {len(names)} columns ({shown}); name the two that hold sources and targets",
            columns=names,
        )
    if columns and (len(columns) != 2 or any(name not in names for name in columns)):
        raise RowsError(
            f"columns are {', '.join(name[:40] for name in columns)}; name two of {shown}",
            columns=names,
        )
    picked = list(columns or names)
    if picked[0] == picked[1]:
        raise RowsError(
            f"both columns are {picked[0][:40]}; name one for sources and another for targets"
        )
    return picked


def from_bytes(
    data: bytes, name: str, columns: Sequence[str] = (), words: bool | None = None
) -> Rows:
    """Rows out of a file's bytes; a name that ends in .csv, or columns that are named, make it a table.

    Raises:
        RowsError: for what cannot be taken.
    """
    if len(data) > LARGEST:
        raise RowsError(f"the file has {len(data):,} bytes; at most {LARGEST:,} are read")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RowsError("the file is UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RowsError(
            f"line {line:,} is not UTF-8 text (byte {data[error.start]:#04x}); save the file as UTF-8"
        ) from None
    if columns or name.lower().endswith(CSV):
        return from_csv(text.replace("\r\n", "\n"), columns, words)
    return from_text(text, words)


def from_file(path: Path, columns: Sequence[str] = (), words: bool | None = None) -> Rows:
    """Rows out of a file: source, tab, target on each line, or a CSV.

    Raises:
        RowsError: for what cannot be read or taken.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RowsError(
            f"{path} cannot be read: {error.strerror or error}; name a file of rows"
        ) from None
    return from_bytes(data, path.name, columns, words)


def from_hub(
    repo: str,
    columns: Sequence[str] = (),
    words: bool | None = None,
    most: int = 100_000,
    token: str | bool = False,
) -> Rows:
    """The first `most` rows of two columns of a dataset on the Hub, streamed: only what is read is fetched, and no code of the
    repository is run.

    Raises:
        RowsError: for what cannot be fetched or taken.
    """
    from playground.data import license_of, stream_columns

    kept = io.StringIO()
    numbers: list[int] = []
    for number, cells in enumerate(stream_columns(repo, columns, chosen, token), start=1):
        odd = next((cell for cell in cells if not isinstance(cell, str | int)), "")
        if odd != "" or isinstance(odd, float):
            raise RowsError(
                f"row {number:,} holds {type(odd).__name__} instead of text; choose columns of texts"
            )
        line = "\t".join(" ".join(str(cell)[: LONGEST_FIELD + 1].split()) for cell in cells)
        if len(line) + kept.tell() > LARGEST or number > most:
            break
        numbers.append(number)
        kept.write(line + "\n")
    text = kept.getvalue()

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        for number, line in zip(numbers, io.StringIO(text), strict=True):
            yield number, line[:-1].split("\t")

    return replace(
        read_rows(lines, words), origin={"dataset": repo, "license": license_of(repo, token)}
    )


def from_function(
    place: str, *, symbols: int = 10, min_length: int = 1, max_length: int = 10, n: int = FUNCTION_ROWS, seed: int = 0, hosted: bool = False
) -> Rows:  # fmt: skip
    """What a Python function answers to `n` distinct drawn sequences: `place` is its file and name, as path.py:function; it takes a
    list of symbols and returns one. It is asked once, here: the run and its checkpoint know the rows only.

    Raises:
        RowsError: on a hosted Space, for a file or function that is not there, or one that fails or answers with something else.
    """
    if hosted or "SPACE_ID" in os.environ:
        raise RowsError(
            "a Python function cannot be a task on a hosted page, where it would run with the owner's rights; bring rows"
        )
    function = _function(place)
    drawn = random.Random(seed)
    sources: dict[tuple[str, ...], None] = {}
    for _ in range(TRIES * n):
        if len(sources) == n:
            break
        sources[
            tuple(drawn.choices(ALPHABET[:symbols], k=drawn.randint(min_length, max_length)))
        ] = None
    answers = [_asked(function, place, source) for source in sources]
    for source, answer in zip(list(sources)[:20], answers, strict=False):
        if _asked(function, place, source) != answer:
            raise RowsError(
                f"{place} answers {' '.join(source)} in two ways; a task needs a function that always gives the same answer"
            )

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        for number, (source, answer) in enumerate(zip(sources, answers, strict=True), start=1):
            yield number, [" ".join(source), " ".join(answer)]

    return read_rows(lines, words=True)


def _function(place: str) -> Callable[[list[str]], Any]:
    path, _, name = place.rpartition(":")
    if not Path(path).is_file():
        raise RowsError(f"{path or place} is no file; name a function as path.py:function")
    spec = importlib.util.spec_from_file_location("playground_task_function", path)
    if spec is None or spec.loader is None:
        raise RowsError(f"{path} is no Python file; name a function as path.py:function")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = (
        module  # as an import does: dataclasses in the file look themselves up here
    )
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RowsError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise RowsError(f"{path} has no function {name}; name one of its own")
    return function


def _asked(function: Callable[[list[str]], Any], place: str, source: tuple[str, ...]) -> list[str]:
    try:
        answer = function(list(source))
    except Exception as error:
        raise RowsError(
            f"{place} failed on {' '.join(source)}: {type(error).__name__}: {error}"
        ) from error
    if (
        not isinstance(answer, list)
        or not all(isinstance(symbol, str) and len(symbol.split()) == 1 for symbol in answer)
        or not answer
    ):
        raise RowsError(
            f"{place} answered {' '.join(source)} with {answer!r:.80}; it must return a list of symbols, at least one"
        )
    return answer


def from_argument(
    task: str, columns: Sequence[str] = (), words: bool | None = None, **drawn: Any
) -> Rows:
    """Rows as a command line names them: a file, hub:user/dataset, or path.py:function (`drawn`: its sequences, as `from_function`).

    Raises:
        RowsError: for what cannot be read or taken.
    """
    if task.startswith("hub:"):
        return from_hub(task.removeprefix("hub:"), columns, words)
    if ".py:" in task:
        return from_function(task, **drawn)
    return from_file(Path(task), columns, words)


def is_argument(task: str) -> bool:
    """Whether a task's name on the command line stands for rows rather than for a task that ships."""
    return (
        task.startswith("hub:")
        or ".py:" in task
        or "/" in task
        or "." in task
        or Path(task).is_file()
    )
