"""Records as tables for other programs: CSV, and Parquet where pyarrow is installed."""

import csv
import io
from pathlib import Path
from typing import Any

from coterie.storage.files import atomic_write


def write_curves(record: dict[str, Any], folder: Path) -> list[Path]:
    """Write a simulation's curves, a row per scheme and round, to rows.csv and rows.parquet; return the files."""
    columns = ["scheme", "round", *record["schemes"][0]["curves"]]
    rows = [
        (scheme["scheme"], round_, *values)
        for scheme in record["schemes"]
        for round_, values in enumerate(zip(*scheme["curves"].values(), strict=True))
    ]
    written = [folder / "rows.csv"]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([columns, *rows])
    with atomic_write(written[0]) as file:
        file.write(text.getvalue().encode())
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return written
    written.append(folder / "rows.parquet")
    with atomic_write(written[1]) as file:
        columns_of = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
        parquet.write_table(pa.table(columns_of), file)
    return written
