"""Logs as Parquet, through pyarrow: the columns of a long table, with types."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from coterie.errors import UsageError
from coterie.leakage.readers.columns import coded
from coterie.leakage.readers.rows import set_numbers
from coterie.leakage.readers.source import Source, check_growth
from coterie.leakage.readers.table import Column, LogTable, cell_text
from coterie.values import ParticipationLog

MAX_ROWS = 2 * 10**8
FREE_ROWS = 4 * 10**6
MAX_DENSITY = 64
"""Rows for each byte: equal rows pack into almost nothing, but no log consists of them."""
_MAGIC = b"PAR1"


def is_parquet(source: Source) -> bool:
    """Say whether a log is a Parquet file, or claims to be one."""
    return source.content.startswith(_MAGIC) or source.name.lower().endswith(".parquet")


class Columns:
    """The columns of a Parquet file, read one by one: what repeats stays packed."""

    def __init__(self, source: Source) -> None:
        self._pa, pq = _pyarrow()
        self._source = source
        with self._damage():
            file = pq.ParquetFile(io.BytesIO(source.content))
            self._check_size(file.metadata)
            self.header = tuple(file.schema_arrow.names)
            # Strings stay in their dictionary: a long one that stands in every row is held once.
            texts = [field.name for field in file.schema_arrow if _is_text(self._pa, field.type)]
            self._file = pq.ParquetFile(io.BytesIO(source.content), read_dictionary=texts)

    def table(self) -> LogTable:
        """Return the columns as a table of text."""

        def rows() -> Iterator[tuple[int, list[str]]]:
            line = 1
            with self._damage():
                for batch in self._file.iter_batches(batch_size=256):
                    columns = [
                        [texts[place] for place in places]
                        for texts, places in map(self._distinct, self._pa.Table.from_batches([batch]).columns)
                    ]
                    yield from enumerate(map(list, zip(*columns, strict=True)), line)
                    line += batch.num_rows

        return LogTable(self._source.name, "Parquet", self.header, rows, unit="row", column=self.column)

    def column(self, column: int, *, strict: bool) -> Column:
        """Return a column's different values as text, and each row's place among them."""
        name = self.header[column]
        with self._damage():
            values = self._file.read(columns=[name]).column(0)
            if strict:
                self._check_column(name, values)
            return self._distinct(values)

    def _distinct(self, values: Any) -> Column:  # noqa: ANN401 - pyarrow is not typed
        """Return the different values as text, as their first rows come, and each row's place among them."""
        pa = self._pa
        values.validate(full=True)  # a spoilt file's places may lie outside its dictionary
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        if pa.types.is_nested(values.type):
            return [""], np.zeros(len(values), dtype=np.int64)  # a list or a record is no cell
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        encoded = encoded.unify_dictionaries().combine_chunks()
        dictionary = [*encoded.dictionary.to_pylist(), None]
        places = encoded.indices.cast(pa.int64()).fill_null(len(dictionary) - 1).to_numpy(zero_copy_only=False)
        first = np.full(len(dictionary), len(places))
        first[places[::-1]] = np.arange(len(places))[::-1]  # of several rows the last one assigned stays
        used = np.argsort(first)[: np.count_nonzero(first < len(places))]
        texts, codes = coded(cell_text(dictionary[place]) for place in used.tolist())
        rank = np.zeros(len(dictionary), dtype=np.int64)
        rank[used] = codes
        return texts, rank[places]

    def _check_column(self, name: str, values: Any) -> None:  # noqa: ANN401
        types = self._pa.types
        kind = values.type.value_type if types.is_dictionary(values.type) else values.type
        known = (types.is_integer, types.is_floating, types.is_temporal, types.is_boolean)
        if not _is_text(self._pa, kind) and not any(test(kind) for test in known):
            raise UsageError(
                f"{self._source.name}: the column {name!r} holds {kind}; it must hold text, numbers or times"
            )
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) + 1
            raise UsageError(
                f"{self._source.name}, row {row}: the column {name!r} is empty (null); complete the row, or "
                "remove it"
            )

    def _check_size(self, metadata: Any) -> None:  # noqa: ANN401
        """Refuse a file that unpacks to more than a log can hold, before it is unpacked."""
        limit = min(MAX_ROWS, max(FREE_ROWS, MAX_DENSITY * len(self._source.content)))
        if metadata.num_rows > limit:
            raise UsageError(
                f"{self._source.name} holds {metadata.num_rows} rows, more than {limit}, the limit for its "
                f"{len(self._source.content)} bytes; give its rounds in parts"
            )
        unpacked = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        check_growth(self._source.name, len(self._source.content), unpacked)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Turn what pyarrow says of a damaged file into a refusal."""
        try:
            yield
        except (self._pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(
                f"{self._source.name} is not a readable Parquet file ({reason}); write it anew"
            ) from error


def _is_text(pa: Any, kind: Any) -> bool:  # noqa: ANN401
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


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
