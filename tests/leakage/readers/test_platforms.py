"""Logs as platforms write them: guessed, told, and put right where the guess is wrong."""

import csv
import gzip
import hashlib
import io
import json
import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from coterie import ParticipationLog, UsageError
from coterie.leakage import strong_level
from coterie.leakage.readers import read_availability, read_log
from support.logs import PLATFORM_FORMS, written

SAME = ParticipationLog.from_dense([[1, 1, 0], [0, 1, 1]], rounds=[3, 4], names=["ann", "bob", "cas"])


@pytest.mark.parametrize("form", PLATFORM_FORMS)
@pytest.mark.parametrize("pack", [False, True])
def test_every_form_says_the_same(tmp_path, form, pack):
    """Whatever the platform, packed or not, whatever the file's name: the same log, and a digest of its bytes."""
    content = PLATFORM_FORMS[form].encode()
    stored = gzip.compress(content) if pack else content
    read = read_log(written(tmp_path / "export.dat", stored))
    log = read.log if read.log.first == 3 else None
    assert log is not None
    assert [(round_, [log.names[user] for user in users]) for round_, users in log.sets()] == [
        (3, ["ann", "bob"]),
        (4, ["bob", "cas"]),
    ]
    assert read.sha256 == hashlib.sha256(stored).hexdigest()
    assert read.understanding.compression == ("gzip" if pack else None)
    assert read.understanding.sentences()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_with_a_byte_order_mark(tmp_path, encoding):
    """Excel's UTF-8 and its Unicode text are read."""
    content = "round\tuser\n3\tann\n3\tbob\n4\tbob\n4\tcas\n".encode(encoding)
    assert read_log(written(tmp_path / "log.txt", content)).log == SAME


def test_a_matrix_without_names(tmp_path):
    """What numpy.savetxt writes of the matrix P is read: rows are rounds, columns users without a name."""
    read = read_log(written(tmp_path / "p.txt", "1 1 0\n0 0 0\n0 1 1\n"))
    assert read.log == ParticipationLog.from_dense([[1, 1, 0], [0, 0, 0], [0, 1, 1]])
    assert read.understanding.round_rule == "each row, in the order of the file"


def test_lists_without_a_round(tmp_path):
    """Where a column has lists and none has rounds, each row is a round; without users it has no result."""
    read = read_log(written(tmp_path / "log.csv", "clients\nann;bob\n[]\nbob;cas\n"))
    assert [round_ for round_, _ in read.log.sets()] == [0, 2]
    assert read.log.first == 0
    assert read.understanding.round_rule == "each row, in the order of the file"


def test_sets_of_long_numbers_stay_apart(tmp_path):
    """However long the numbers of the learned sets are, two of them are two sums."""
    lines = [f"1,{user},{10**25 + number}" for user, number in (("ann", 1), ("bob", 1), ("cas", 2), ("cas", 1))]
    read = read_log(written(tmp_path / "log.csv", "\n".join(["round,user,set", *lines, ""])))
    assert [users.tolist() for _, users in read.log.sets()] == [[0, 1, 2], [2]]


def test_a_repeated_row_is_told_with_the_number_of_its_set(tmp_path):
    """The warning calls a learned set what the file calls it."""
    read = read_log(written(tmp_path / "log.csv", "round,user,set\n1,ann,7\n1,bob,9\n1,bob,9\n"))
    assert "the user 'bob' stands twice in set 9 of round 1 (before: " in read.understanding.warnings[0]


def test_a_refusal_counts_what_the_file_has(tmp_path):
    """Rows of a Parquet file and entries of a JSON document are called so, and not lines."""
    pq.write_table(pa.table({"round": [3, 4], "ann": ["1", "0"], "bob": ["1", "?"]}), tmp_path / "log.parquet")
    with pytest.raises(UsageError, match=r"log.parquet, row 2: the column 'bob' has '\?'"):
        read_log(tmp_path / "log.parquet")
    sets = '[{"round": 3, "set": 1, "users": ["ann"]},\n {"round": 3, "set": 1, "users": ["bob"]}]'
    with pytest.raises(UsageError, match=r"entry 2: round 3 has its set 1 in entry 1 already"):
        read_log(written(tmp_path / "log.json", sets))


def test_columns_of_one_round_are_sums_of_their_own(tmp_path):
    """Two columns that name one round are two learned sets of it, as two rows of a matrix are: never one sum."""
    read = read_log(written(tmp_path / "log.csv", "client,r3,r03,r4\nann,1,1,0\nbob,0,1,1\ncas,0,0,1\n"))
    assert read.understanding.round_rule == "a column, numbered by the number in values such as 'r3' of the header"
    matrix = read_log(written(tmp_path / "matrix.csv", "round,ann,bob,cas\nr3,1,0,0\nr03,1,1,0\nr4,0,1,1\n"))
    assert read.log == matrix.log
    assert [(each, members.tolist()) for each, members in read.log.sets()] == [(3, [0]), (3, [0, 1]), (4, [1, 2])]
    assert read.understanding.warnings == ()


def test_columns_of_grouped_times_are_sums_of_their_own(tmp_path):
    """Columns of times that one rule groups into a round are not added up: the level would come out too high."""
    times = [f"2024-01-0{day}T10:00:0{second}" for day in (1, 2) for second in (0, 5)]
    rows = ["1,1,0,0", "1,0,1,0", "0,1,0,1", "1,1,1,1", "0,0,1,1"]
    lines = [",".join(["user", *times]), *(f"user-{place},{row}" for place, row in enumerate(rows))]
    read = read_log(written(tmp_path / "log.csv", "\n".join(lines) + "\n"))
    assert len(read.log.set_rounds) == len(times)
    assert strong_level(read.log) == 1


@pytest.mark.parametrize("before", [50, 75])
def test_a_key_that_comes_late_is_looked_at_too(tmp_path, before):
    """The number of a set first stands behind a hundred records: its sets stay apart, and the level is true."""
    records = [{"round": round_, "user": user} for round_ in range(before) for user in ("ann", "bob")]
    records += [{"round": before, "user": user, "set": place} for place, user in enumerate(("ann", "bob"))]
    read = read_log(written(tmp_path / "log.jsonl", "\n".join(map(json.dumps, records))))
    assert read.understanding.set_column == "set"
    assert strong_level(read.log) == 1


def test_a_round_that_stands_twice_in_an_object_is_refused(tmp_path):
    """A decoder keeps the last of two equal keys, and the first one's sum would be lost."""
    file = written(tmp_path / "log.json", '{"1": ["ann", "bob"], "2": ["ann"], "1": ["bob", "cas"]}')
    with pytest.raises(UsageError, match=r"the key '1' stands 2 times"):
        read_log(file)


def test_parquet_with_other_names_and_times(tmp_path):
    """Columns of a Parquet file are guessed, too; times in it are grouped into rounds."""
    start = datetime(2026, 5, 1, tzinfo=UTC)
    times = [start + timedelta(hours=index // 2, seconds=index % 2) for index in range(4)]
    table = pa.table({"loss": [0.1] * 4, "ts": times, "device_id": ["ann", "bob", "bob", "cas"]})
    pq.write_table(table, tmp_path / "log.parquet")
    read = read_log(tmp_path / "log.parquet")
    assert read.log.to_dense().tolist() == SAME.to_dense().tolist()
    assert (read.understanding.round_column, read.understanding.user_column) == ("ts", "device_id")
    pq.write_table(pa.table({"round": [3, 4], "ann": [True, False], "bob": [True, True], "cas": [False, True]}),
                   tmp_path / "wide.parquet")  # fmt: skip
    assert read_log(tmp_path / "wide.parquet").log == SAME


def test_what_was_understood_is_told(tmp_path):
    """Columns, delimiter, the making of rounds, and what was not used come with the log."""
    rows = [f"2026-05-0{day} 12:00:0{second};x;u{second};-" for day in (1, 2) for second in range(3)]
    path = written(tmp_path / "log.csv", "when;who;cid;note\n" + "\n".join(rows))
    told = read_log(path, round_column="when").understanding
    rule = (
        "times in the column 'when' without a pause of more than 1 s between them (2 rounds, 2026-05-01 12:00:00 "
        "UTC to 2026-05-02 12:00:02 UTC)"
    )
    assert told.sentences() == [
        "CSV with semicolons, a row for each user and round: rounds from the column 'when', users from 'cid'.",
        f"A round: {rule}.",
        "Not used: who, note.",
    ]
    assert not told.exact


def test_duplicates_are_counted_and_shown(tmp_path):
    """Rows that say the same count once; the warning shows the first of them, with both lines."""
    told = read_log(written(tmp_path / "log.csv", PLATFORM_FORMS["duplicates"])).understanding
    assert told.duplicates == 2
    assert "line 4: the user 'ann' stands twice in round 3 (before: " in told.warnings[0]
    assert "line 2), the first of 2 such rows; counted once" in told.warnings[0]


def test_a_column_that_may_mark_failures_is_pointed_out(tmp_path):
    """A status that differs from row to row may mean that users did not take part in the end."""
    told = read_log(written(tmp_path / "log.csv", "round,cid,status\n0,a,ok\n0,b,failed\n")).understanding
    assert len(told.warnings) == 1
    assert told.warnings[0].startswith("the column 'status' ('ok', 'failed') was not used; if it marks users who")
    same = read_log(written(tmp_path / "log.csv", "round,cid,status\n0,a,ok\n0,b,ok\n")).understanding
    assert same.warnings == ()


def test_columns_can_be_named_or_numbered(tmp_path):
    """Where the guess is wrong, the caller names the columns, or counts them from 1."""
    path = written(tmp_path / "log.csv", "round;user;epoch;phone\n0;x;3;ann\n0;x;3;bob\n0;y;4;bob\n0;y;4;cas\n")
    assert read_log(path, round_column="epoch", user_column="phone", delimiter=";").log == SAME
    assert read_log(path, round_column="3", user_column="4").log == SAME
    with pytest.raises(UsageError, match="there is no column 'sphone' for --user-column; the columns are 'round'"):
        read_log(path, user_column="sphone")
    with pytest.raises(UsageError, match="both name 'epoch'"):
        read_log(path, round_column="epoch", user_column="epoch")
    with pytest.raises(UsageError, match="give one character"):
        read_log(path, delimiter=";;")


def test_coteries_own_forms_are_exact(tmp_path):
    """Where nothing was guessed, that is said."""
    assert read_log(written(tmp_path / "log.csv", "round,user\n0,a\n")).understanding.exact
    assert read_log(written(tmp_path / "log.csv", "round,ann,bob\n0,1,1\n")).understanding.exact
    assert not read_log(written(tmp_path / "log.csv", "round,cid\n0,a\n")).understanding.exact


def test_standard_input(monkeypatch):
    """A dash is standard input, read once."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLATFORM_FORMS["tabs"].encode())))
    read = read_log("-")
    assert read.log == SAME
    assert read.name == "standard input"


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 9), min_size=2), min_size=2, max_size=12),
    st.sampled_from(["iso", "seconds", "milliseconds", "nanoseconds", "decimal"]),
    st.randoms(use_true_random=False),
)
def test_times_fall_into_the_rounds_that_they_came_from(tmp_path_factory, cohorts, unit, random):
    """Uploads within a minute, rounds an hour or more apart: the rounds come out, however times are written."""
    rows, start = [], 1_790_000_000.0
    for cohort in cohorts:
        start += random.uniform(3600, 9000)
        rows += [(start + random.uniform(0, 60), user) for user in cohort]
    random.shuffle(rows)
    lines = [f"{moment(time, unit)},u{user}" for time, user in rows]
    path = written(tmp_path_factory.getbasetemp() / "times.csv", "timestamp,client\n" + "\n".join(lines))
    read = read_log(path)
    seen = [{read.log.names[user] for user in users} for _, users in read.log.sets()]
    assert seen == [{f"u{user}" for user in cohort} for cohort in cohorts]
    assert f"{len(cohorts)} rounds" in read.understanding.round_rule


def moment(time, unit):
    """A time as a platform may write it."""
    match unit:
        case "iso":
            return datetime.fromtimestamp(time, UTC).isoformat()
        case "seconds":
            return str(int(time))
        case "milliseconds":
            return str(int(time * 1000))
        case "nanoseconds":
            return str(int(time * 1000) * 10**6)
    return f"{time:.3f}"


def test_equal_times_are_rounds(tmp_path):
    """Where each round has one time for all its users, equal times are rounds, also across nights."""
    hours = [0, 1, 2, 3, 24, 25, 26, 27]
    rows = [f"2026-05-0{1 + h // 24}T0{h % 24}:00:00Z,u{u}" for h in hours for u in range(3)]
    read = read_log(written(tmp_path / "log.csv", "time,user\n" + "\n".join(rows) + "\n"))
    assert read.log.rounds == 8
    assert read.understanding.round_rule.startswith("rows with the same time in the column 'time' (8 rounds")


@pytest.mark.parametrize("day", ["2026-05-{:02}", "202605{:02}", "{}.5.2026", "2026/5/{}"])
def test_days_are_rounds(tmp_path, day):
    """Days in several spellings are rounds."""
    rows = [f"{day.format(d)},u{u}" for d in range(1, 6) for u in range(4)]
    read = read_log(written(tmp_path / "log.csv", "date,user\n" + "\n".join(rows) + "\n"))
    assert (read.log.rounds, read.log.users) == (5, 4)


def test_times_without_clear_rounds_are_refused(tmp_path):
    """Where no pause stands out and no times are equal, nothing is made up."""
    rows = [f"{1_790_000_000 + 10 * index},u{index % 50}" for index in range(500)]
    with pytest.raises(UsageError, match=r"fall into no clear rounds: .* --round-column"):
        read_log(written(tmp_path / "log.csv", "timestamp,user\n" + "\n".join(rows) + "\n"))


def test_texts_as_rounds(tmp_path):
    """Rounds with names of their own are counted in the order of their first rows."""
    read = read_log(written(tmp_path / "log.csv", "round,user\nbeta,a\nbeta,b\nalpha,b\nalpha,c\n"))
    assert read.log.to_dense().tolist() == [[1, 1, 0], [0, 1, 1]]
    assert "order of their first rows" in read.understanding.round_rule


def test_availability_in_other_forms(tmp_path):
    """A record of who was online is read in the same forms; a wide one may show that nobody was."""
    log = read_availability(written(tmp_path / "online.csv", "round;ann;bob\n0;1;1\n1;0;0\n2;1;0\n"))
    assert log.online.tolist() == [[True, True], [False, False], [True, False]]


def test_a_delimiter_for_json_is_refused(tmp_path):
    """An option that has no effect is refused, not ignored."""
    path = tmp_path / "log.json"
    path.write_text('[{"round": 0, "user": "a"}]')
    with pytest.raises(UsageError, match="is JSON, on which --delimiter has no effect; leave it out"):
        read_log(path, delimiter=";")


def test_rows_that_deny_participation_are_left_out_of_parquet_too(tmp_path):
    """A column that says who took part, and one that may, are treated alike in CSV and in Parquet."""
    columns = {
        "round": [0, 0, 0, 0, 1, 1],
        "user": ["eve", "ana", "bob", "cas", "ana", "bob"],
        "participated": [False, True, True, True, True, True],
        "status": [None, "done", "late", "done", "done", "done"],
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    with (tmp_path / "log.csv").open("w") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    packed, plain = (read_log(tmp_path / f"log.{form}") for form in ("parquet", "csv"))
    assert packed.log == plain.log
    assert packed.log.names == ("ana", "bob", "cas")
    for read in (packed, plain):
        assert read.understanding.left_out == 1
        (warning,) = read.understanding.warnings
        assert warning.startswith("the column 'status' ('done', 'late') was not used")
    columns["participated"] = ["yes", "no", "yes", "maybe", "yes", "yes"]
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    with pytest.raises(UsageError, match="row 4: the column 'participated' has 'maybe'; write 0 or 1"):
        read_log(tmp_path / "log.parquet")
