"""Tables in Parquet files, read with limited memory."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from .json_tables import collect_columns, flatten
from .pairs import DatasetError
from .tables import MAX_COLUMNS, Row, Table

MAX_ROW_GROUP_BYTES = 200_000_000  # uncompressed bytes of the columns of a row group
MAX_BATCH_BYTES = 50_000_000  # bytes of rows that are decoded together
MAX_VALUES = 10_000_000  # values of the columns of a file
MAX_CHARS = 200_000_000  # characters of the columns of a file
ROWS_PER_BATCH = 64  # rows that are decoded together
READ_BUFFER_BYTES = 1 << 20  # bytes of a column that are fetched together


def parquet_table(file: BinaryIO, columns: Sequence[str] = ()) -> Table:
    """Return the table of a Parquet file, or of these `columns`; of nested columns the leaves."""
    outer_columns = {name.partition(".")[0] for name in columns}
    names = collect_columns(islice(_objects(file, outer_columns), ROWS_PER_BATCH))

    def rows(selected: Sequence[str]) -> Iterator[Row]:
        n_chars = 0
        for number, row in enumerate(_objects(file, outer_columns), start=1):
            flat = flatten(row)
            cells = [flat.get(name) for name in selected]
            n_chars += sum(len(cell) for cell in cells if cell)
            if n_chars > MAX_CHARS:
                raise _too_large("in all rows", MAX_CHARS)
            yield number, cells

    return Table("Parquet", names, rows, encoding="")


def _objects(file: BinaryIO, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with all columns if one of `columns` does not exist.

    A small file may decompress to any size, and repeat a long text in any number of rows. So the
    footer is checked for the size of each row group, and the rows are decoded in small pieces.
    """
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    try:
        table = parquet.ParquetFile(file, buffer_size=READ_BUFFER_BYTES)
        if max(table.metadata.num_columns, table.num_row_groups) > MAX_COLUMNS:
            raise DatasetError(
                f"the Parquet file has more than {MAX_COLUMNS:,} columns or row groups; write the "
                "columns of sources and targets to a file of their own"
            )
        n_values = 0
        existing = table.schema_arrow.names
        selected = list(columns) if columns and set(columns) <= set(existing) else existing
        for number in range(table.num_row_groups):
            group = table.metadata.row_group(number)
            is_small = group.total_byte_size <= MAX_ROW_GROUP_BYTES
            # A column with damaged statistics ends the process here; later it is an error.
            if not is_small and _uncompressed_size(group, selected) > MAX_ROW_GROUP_BYTES:
                raise _too_large(f"in row group {number + 1:,}", MAX_ROW_GROUP_BYTES)
            for batch in table.iter_batches(ROWS_PER_BATCH, row_groups=[number], columns=selected):
                if batch.nbytes > MAX_BATCH_BYTES:
                    raise _too_large("in few rows", MAX_BATCH_BYTES)
                n_values += sum(map(_count_values, batch.columns))
                if n_values > MAX_VALUES:
                    raise DatasetError(
                        f"the Parquet file has more than {MAX_VALUES:,} values in these columns; "
                        "name other columns, or upload a part of it"
                    )
                step = 1 if batch.nbytes > READ_BUFFER_BYTES else ROWS_PER_BATCH
                for start in range(0, batch.num_rows, step):
                    try:
                        yield from batch.slice(start, step).to_pylist()
                    except (ArrowException, ValueError, OverflowError, LookupError):
                        raise DatasetError(
                            "the Parquet file has values that cannot be read, such as text that "
                            "is not UTF-8 or dates after 9999; correct them, or name other columns"
                        ) from None
    except (ArrowException, OSError, ValueError) as error:
        # other errors are those of the network, and of the caller
        own = (OSError, ValueError, UnicodeDecodeError)
        if not isinstance(error, ArrowException) and type(error) not in own:
            raise
        raise DatasetError("the Parquet file is damaged; write it again") from None


def _too_large(where: str, limit: int) -> DatasetError:
    return DatasetError(
        f"the Parquet file has more than {limit / 1e6:,.0f} MB of these columns {where}; name "
        "other columns, or upload a part of it"
    )


def _uncompressed_size(group: Any, columns: Sequence[str]) -> int:
    """Return the uncompressed bytes of these columns of a row group, from its footer."""
    outer, parts = set(columns), map(group.column, range(group.num_columns))
    return sum(
        part.total_uncompressed_size
        for part in parts
        if part.path_in_schema in outer or part.path_in_schema.partition(".")[0] in outer
    )


def _count_values(column: Any) -> int:
    """Return the number of values of a column, also in lists and structs, and of missing ones."""
    from pyarrow import types

    if types.is_struct(column.type):
        return sum(map(_count_values, column.flatten()))
    has_elements = types.is_list(column.type) or types.is_large_list(column.type)
    return len(column) + (_count_values(column.flatten()) if has_elements else 0)
