"""Logs as Parquet, through pyarrow: the columns of the CSV form, with types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coterie.errors import UsageError
from coterie.logs.rows import MAX_NUMBER, Rows, check_columns, set_numbers
from coterie.storage.files import reading
from coterie.values import IntArray, ParticipationLog

MAX_ROWS = 2 * 10**8
MAX_BYTES = 2**32
"""Of a file unpacked: a small file can claim far more than fits into memory."""


def read_parquet(path: Path, known: Sequence[str]) -> Rows:
    """Read the columns of a Parquet file; `known` may occur."""
    pa, pq = _pyarrow()
    with reading(path), path.open("rb") as file:
        try:
            parquet = pq.ParquetFile(file)
            check_columns(str(path), parquet.schema_arrow.names, known)
            _check_size(path, parquet.metadata)
            table = parquet.read()
            users = _encoded(pa, path, table["user"])
            names = [str(name) for name in users.dictionary.to_pylist()]
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{path} is not a readable Parquet file ({reason}); write it anew") from error
    return Rows(
        path,
        rounds=_integers(pa, path, table, "round"),
        sets=_integers(pa, path, table, "set") if "set" in table.column_names else None,
        users=users.indices.to_numpy(),
        names=names,
    )


def _check_size(path: Path, metadata: Any) -> None:  # noqa: ANN401
    """Refuse a file that unpacks to more than a log of this many rows can hold, before it is unpacked."""
    unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or unpacked > MAX_BYTES:
        raise UsageError(
            f"{path} holds {metadata.num_rows} rows in {unpacked} bytes, more than {MAX_ROWS} rows or {MAX_BYTES} "
            f"bytes; audit the rounds in parts"
        )


def _encoded(pa: Any, path: Path, column: Any) -> Any:  # noqa: ANN401 - pyarrow is not typed
    """Return the users' column as indices into the distinct users."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_integer,
        )
    ):
        raise UsageError(f"{path}: the column 'user' holds {kind}; it must hold strings or integers")
    _refuse_nulls(path, "user", column)
    wide = pa.large_string() if not pa.types.is_integer(kind) else kind  # any length of text in one piece
    whole = pa.chunked_array([column.cast(wide).combine_chunks()], type=wide)
    return whole.chunk(0).dictionary_encode()


def _integers(pa: Any, path: Path, table: Any, what: str) -> IntArray:  # noqa: ANN401
    """Return a column of integers, 0 or more."""
    column = table[what]
    if not pa.types.is_integer(column.type):
        raise UsageError(f"{path}: the column {what!r} holds {column.type}; it must hold integers")
    _refuse_nulls(path, what, column)
    values: IntArray = column.to_numpy()
    bad = np.flatnonzero((values < 0) | (values > MAX_NUMBER))
    if len(bad):
        raise UsageError(
            f"{path}, row {bad[0] + 1}: the {what} {values[bad[0]]} is not an integer from 0 to {MAX_NUMBER}"
        )
    return values.astype(np.int64)


def _refuse_nulls(path: Path, what: str, column: Any) -> None:  # noqa: ANN401
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy())) + 1
        raise UsageError(f"{path}, row {row}: the {what} is missing (null); complete the row, or remove it")


def write_parquet(log: ParticipationLog, file: BinaryIO) -> None:
    """Write a log as Parquet: 64-bit rounds and sets, users as strings, or as numbers if without names."""
    pa, pq = _pyarrow()
    sizes = np.diff(log.starts)
    columns = {"round": np.repeat(log.set_rounds, sizes)}
    numbers = set_numbers(log)
    if numbers is not None:
        columns["set"] = np.repeat(numbers, sizes)
    columns["user"] = (
        log.members
        if log.names is None
        else pa.DictionaryArray.from_arrays(pa.array(log.members), pa.array(log.names, pa.string()))
    )
    # Without Arrow's own schema a dictionary is for every reader what it is in the file: strings.
    pq.write_table(pa.table(columns), file, store_schema=False)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet as pq
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'coterie[parquet]', or use CSV") from None
    return pa, pq
