"""Read datasets on the Hub like files from a user: no type is inferred, the pairs are the same."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from playground.datasets.pairs import DatasetError, PairDataset
from playground.datasets.parquet_tables import parquet_table
from playground.datasets.sources import GZIP_MAGIC, ReadOptions, decompress, open_table, read_table
from playground.datasets.tables import MAX_BYTES, Row, Table

from . import transport
from .client import Hub
from .dataset_repository import Repository, join_names, parse_name
from .errors import HubError, NotFoundError

MAX_ROWS = 100_000
BLOCK_BYTES = 1 << 20  # bytes of a large Parquet file that are fetched together
LINE_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")  # of files that may be cut


def read_hub(name: str, options: ReadOptions, token: str = "") -> PairDataset:
    """Read the first pairs of a dataset on the Hub, with the token of a user.

    Raises DatasetError if it cannot be fetched, for invalid data, or with the configurations or
    splits from which to choose.
    """
    repo, revision, options = parse_name(name, options)
    transport.configure_process()
    try:
        hub = Hub(token)
        with hub.translating_errors("read", f"datasets/{repo}"):
            repository = Repository(hub, hub.raw_repo_info(repo, revision, kind="datasets"))
            config, split, paths = repository.find_split(options)
            origin = repository.origin | {"config": config, "split": split}
            table = _split_table(repository, paths, options, origin)
            return replace(read_table(table, options), origin=origin)
    except HubError as error:
        is_hidden = isinstance(error, NotFoundError) and not token and revision == "main"
        hint = "; if it is private, sign in with an account that can read it" if is_hidden else ""
        raise DatasetError(f"{error}{hint}") from None


def _split_table(
    repository: Repository, paths: Sequence[str], options: ReadOptions, origin: dict[str, str]
) -> Table:
    """Return the table of the files of a split, one after the other.

    A file is fetched when its first row is needed. At a limit, `origin` gets the `part` that is
    read. Raises DatasetError if the first file is invalid.
    """
    unread = _open_tables(repository, paths, options, origin)
    tables = list(islice(unread, 1))
    if not tables:
        raise DatasetError(f"the files of {repository.name} are empty; choose another dataset")

    def rows(selected: Sequence[str]) -> Iterator[Row]:
        n_rows = n_before = 0
        for index in count():
            if index == len(tables):
                tables.extend(islice(unread, 1))
            if index == len(tables):
                return
            known = [name for name in selected if name in tables[index].columns]
            number = 0
            for number, cells in tables[index].rows(known):
                if n_rows == MAX_ROWS:
                    origin["part"] = f"the first {MAX_ROWS:,} rows"
                    return
                n_rows += 1
                if not isinstance(cells, str):
                    by_name = dict(zip(known, cells, strict=True))
                    cells = [by_name.get(name) for name in selected]
                yield n_before + number, cells
            n_before += number

    return replace(tables[0], rows=rows)


def _open_tables(
    repository: Repository, paths: Sequence[str], options: ReadOptions, origin: dict[str, str]
) -> Iterator[Table]:
    """Yield the table of each file that has rows, until `MAX_BYTES` are fetched.

    Raises DatasetError for an invalid file, or one without the columns of the first.
    """
    left = MAX_BYTES
    columns: Sequence[str] = ()
    for path in paths:
        name = path.removeprefix(repository.base)
        try:
            table, n_bytes = _open_file(repository, path, options, left) if left else (None, 1)
        except DatasetError as error:
            raise DatasetError(f"{name}: {error}") from None
        if n_bytes > left:
            origin["part"] = f"the first {MAX_BYTES / 1e6:,.0f} MB"
        if table is None and columns:
            return
        if table is None:
            raise DatasetError(
                f"{name} has {repository.sizes[path] / 1e6:,.0f} MB; of a file in this format at "
                f"most {MAX_BYTES / 1e6:,.0f} MB are read: upload a part of it"
            )
        left = max(left - n_bytes, 0)
        if not table.columns:
            continue
        if not set(columns) <= set(table.columns):
            raise DatasetError(
                f"{name} has the columns {join_names(table.columns)}, but the first file of the "
                f"split has {join_names(columns)}; upload one of the files"
            )
        columns = options.columns or table.columns
        options = replace(options, has_names=table.has_names)
        yield table


def _open_file(
    repository: Repository, path: str, options: ReadOptions, limit: int
) -> tuple[Table | None, int]:
    """Return the table of a file and its number of bytes, also if only `limit` of them are read.

    Of a larger file the first lines are read. If it has no lines, the table is None. Raises
    DatasetError for an invalid file.
    """
    name = path.lower()
    if name.endswith(".parquet") and repository.sizes[path] > limit:
        file = repository.files.open(
            path,
            block_size=BLOCK_BYTES,
            cache_type="blockcache",
            cache_options={"maxblocks": MAX_BYTES // BLOCK_BYTES},
        )
        return parquet_table(file, options.columns), 0
    with repository.files.open(path, block_size=0) as file:  # without a cache
        data = file.read(limit + 1)
    n_bytes = len(data)
    if n_bytes > limit:
        first_line = data.partition(b"\n")[0]
        has_lines = name.endswith(LINE_ENDINGS) or first_line.endswith(b"}")  # JSON Lines
        end = data.rfind(b"\n", 0, limit) + 1
        if not has_lines or not end or b"\x00" in first_line:  # UTF-16
            return None, n_bytes
        data = data[:end]
    elif data.startswith(GZIP_MAGIC):
        data = decompress(data)
        n_bytes = min(len(data), limit)
    return open_table(data, path.removeprefix(repository.base), options), n_bytes
