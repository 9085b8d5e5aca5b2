"""What a file or its reader claims never decides how much memory or time is taken."""

import gzip
import resource
import sys
from subprocess import run

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from coterie import ParticipationLog, UsageError
from coterie.leakage import measure
from support.logs import only_log

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from coterie import UsageError
from coterie.leakage.readers import read_log
from coterie.selection.plan_file import read_plan
try:
    if sys.argv[1].endswith(".json"):
        print(read_plan(sys.argv[1]))
    else:
        print(read_log(sys.argv[1], users=int(sys.argv[2]) if len(sys.argv) > 2 else None).log)
except UsageError as error:
    print("refused:", error)
"""


def read_in_little_memory(path, *users):
    """What reading a file says in a process with three gigabytes of memory and half a minute of processor."""
    ended = run(
        [sys.executable, "-c", LIMITED, path, *map(str, users)],
        capture_output=True, text=True, timeout=100, check=False, preexec_fn=half_a_minute,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def half_a_minute():
    """Let the process end that takes more processor time than that, however busy the machine is."""
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))


def test_two_thousand_million_users(tmp_path):
    """Numbers as users cost nothing however many are claimed; names are not made up without end."""
    path = tmp_path / "log.csv"
    path.write_text("round,user\n0,5\n1,7\n")
    assert only_log(path, users=2**31 - 1).users == 2**31 - 1
    path.write_text("round,user\n0,ann\n1,7\n")
    assert "refused" in read_in_little_memory(path, 2**31 - 1)
    with pytest.raises(UsageError, match="names are made up for at most"):
        only_log(path, users=2**31 - 1)
    with pytest.raises(UsageError, match="users were given"):
        only_log(path, users=2**31)


def test_a_small_parquet_file_of_very_many_rows_is_refused(tmp_path):
    """Two hundred million equal rows pack into a small file; they are refused before they are unpacked."""
    path = tmp_path / "log.parquet"
    piece = pa.table({"round": np.zeros(2**22, dtype=np.int64), "user": np.zeros(2**22, dtype=np.int32)})
    with pq.ParquetWriter(path, piece.schema, compression="zstd") as writer:
        for _ in range(50):
            writer.write_table(piece)
    assert path.stat().st_size < 2**21
    assert "209715200 rows" in read_in_little_memory(path)


def test_a_long_name_in_every_row_is_held_once(tmp_path):
    """Thirty thousand rows in few kilobytes, thirty gigabytes of text in all, are read as what they are."""
    path = tmp_path / "log.parquet"
    user = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, dtype=np.int32)), pa.array(["a" * 10**6]))
    pq.write_table(pa.table({"round": np.arange(30_000), "user": user}), path, compression="zstd")
    assert path.stat().st_size < 2 * 10**5
    assert "1 users, 30000 rounds" in read_in_little_memory(path)


def test_a_parquet_file_that_unpacks_to_very_much_is_refused(tmp_path):
    """Different long names pack well too; what they would take is counted before they are unpacked."""
    path = tmp_path / "log.parquet"
    names = [f"{number}{'a' * 10**6}" for number in range(200)]
    pq.write_table(pa.table({"round": [0] * 200, "user": names}), path, compression="zstd")
    assert path.stat().st_size < 10**5
    assert "unpacks to more than 67108864 bytes" in read_in_little_memory(path)


def test_a_gzip_bomb_is_refused(tmp_path):
    """Gigabytes that pack into megabytes are refused before they fill the memory."""
    path = tmp_path / "log.csv.gz"
    piece = gzip.compress(b"round,user\n" + b"0,a\n" * 2**20)
    path.write_bytes(piece * 640)
    assert "unpacks to more than" in read_in_little_memory(path)


def test_many_wide_columns_with_one_twice(tmp_path):
    """Sixty thousand columns are looked at once, not each beside all others."""
    path = tmp_path / "log.csv"
    names = [f"u{number}" for number in range(60_000)]
    path.write_text(",".join(["round", *names, "u7"]) + "\n" + ",".join(["0"] + ["1"] * 60_001) + "\n")
    assert "the user 'u7' stands there twice" in read_in_little_memory(path)
    path.write_text(",".join(["round", *names]) + "\n" + ",".join(["0"] + ["1"] * 60_000) + "\n")
    assert "60000 users, 1 rounds" in read_in_little_memory(path)


def test_a_first_line_does_not_decide_how_much_memory_is_taken(tmp_path):
    """Users and rounds that a file only claims cost nothing."""
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"format":"coterie log","version":1,"first":0,"rounds":100000000,"users":2147483647}\n'
        '{"round":0,"users":[0]}\n'
    )
    assert "2147483647 users, 100000000 rounds" in read_in_little_memory(path)


def test_a_plan_of_two_thousand_million_users_is_refused(tmp_path):
    """Users in no batch cost memory; a plan may claim only so many as its size allows."""
    path = tmp_path / "plan.json"
    path.write_text('{"format":"coterie plan","version":1,"users":2147483647,"privacy":2,"batches":[[0,1]]}')
    assert "2147483647 users are more than 1000000, the limit for a plan of" in read_in_little_memory(path)


def test_deeply_nested_and_very_long_json(tmp_path):
    """Depth ends in a refusal; a document of a million empty lists, in memory that grows with it."""
    path = tmp_path / "log.txt"
    for content in ("[" * 10**6, '{"a":' * 10**6, "[" + "[]," * 10**6 + "[]]", "[" + "{}," * 10**6 + "{}]"):
        path.write_text(content)
        assert "refused" in read_in_little_memory(path)


def test_seconds_since_1970_are_no_rounds(tmp_path):
    """Times as integers are grouped into rounds, not taken for a thousand million empty ones."""
    path = tmp_path / "log.csv"
    times = [1_790_000_000 + 3600 * round_ + second for round_ in range(5) for second in range(4)]
    path.write_text("round,user\n" + "".join(f"{time},u{time % 7}\n" for time in times))
    assert "5 rounds" in read_in_little_memory(path)


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
