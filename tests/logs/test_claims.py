"""What a file or its reader claims never decides how much memory or time is taken."""

import sys
from subprocess import run

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from coterie import ParticipationLog, UsageError
from coterie.audit import measure
from coterie.logs import parquet, read_log

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from coterie import UsageError
from coterie.logs import read_log
try:
    print(read_log(sys.argv[1], users=int(sys.argv[2]) if len(sys.argv) > 2 else None))
except UsageError as error:
    print("refused:", error)
"""


def read_in_little_memory(path, *users):
    """What reading a log says in a process with three gigabytes at most."""
    ended = run(
        [sys.executable, "-c", LIMITED, path, *map(str, users)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_two_thousand_million_users(tmp_path):
    """Numbers as users cost nothing however many are claimed; names are not made up without end."""
    path = tmp_path / "log.csv"
    path.write_text("round,user\n0,5\n1,7\n")
    assert read_log(path, users=2**31 - 1).users == 2**31 - 1
    path.write_text("round,user\n0,ann\n1,7\n")
    assert "refused" in read_in_little_memory(path, 2**31 - 1)
    with pytest.raises(UsageError, match="names are made up for at most"):
        read_log(path, users=2**31 - 1)
    with pytest.raises(UsageError, match="users were given"):
        read_log(path, users=2**31)


def test_a_small_parquet_file_of_very_many_rows_is_refused(tmp_path):
    """Two hundred million equal rows pack into a small file; they are refused before they are unpacked."""
    path = tmp_path / "log.parquet"
    piece = pa.table({"round": np.zeros(2**22, dtype=np.int64), "user": np.zeros(2**22, dtype=np.int32)})
    with pq.ParquetWriter(path, piece.schema, compression="zstd") as writer:
        for _ in range(50):
            writer.write_table(piece)
    assert path.stat().st_size < 2**21
    assert "209715200 rows" in read_in_little_memory(path)


def test_a_parquet_file_that_unpacks_to_very_much_is_refused(tmp_path, monkeypatch):
    """Long names pack well too; the bytes they would take are counted."""
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"round": [0, 1], "user": ["a" * 10**6, "b" * 10**6]}), path, compression="zstd")
    assert path.stat().st_size < 10**4
    assert read_log(path).users == 2
    monkeypatch.setattr(parquet, "MAX_BYTES", 10**6)
    with pytest.raises(UsageError, match=r"2 rows in 2[0-9]{6} bytes, more than .*; audit the rounds in parts"):
        read_log(path)


def test_rounds_ten_million_apart_are_measured_right():
    """The measures after every round are right across a gap of ten million rounds without a result."""
    log = ParticipationLog(
        users=3,
        rounds=10**7 + 2,
        set_rounds=np.array([1, 10**7]),
        starts=np.array([0, 2, 3]),
        members=np.array([0, 1, 0]),
    )
    measures = measure(log)
    assert measures.strong[[0, 1, 10**7 - 1, 10**7]].tolist() == [3, 2, 2, 1]
    assert measures.fairness_gap[10**7 - 1] == 1 / 10**7
    assert measures.final == (1, 2 / (10**7 + 2), 1.0, 3 / (10**7 + 2), 10**7)
