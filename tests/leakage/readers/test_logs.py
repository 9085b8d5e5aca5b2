"""Logs as files."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn
from pyarrow import parquet as pq

from coterie import LogBuilder, ParticipationLog, UsageError
from coterie.leakage.readers import read_availability, table, write_log
from coterie.leakage.readers.parquet import Columns
from coterie.leakage.readers.source import read_source
from support.logs import only_log

FORMS = ("csv", "parquet")
ODD = [
    "a,b",
    'say "hi"',
    '"',
    "two\nlines",
    "two\r\nlines",
    "\r",
    "=1+1",
    "@cmd",
    " blank ",
    "Zoë",
    "🦊",
    "\ufeff",
    "007",
]
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5)


@st.composite
def logs(draw, *, named):
    """Logs that a file can show in full: rounds with results at both ends, and named users all seen."""
    users = draw(st.integers(1, 6))
    learned = stn.arrays(np.int64, users, elements=st.integers(0, 1)).filter(np.any)
    rounds = draw(st.lists(st.lists(learned, max_size=3), max_size=5))
    names = draw(st.lists(NAMES | st.sampled_from(ODD), min_size=users, max_size=users, unique=True))
    builder = LogBuilder(users, sorted(names) if named else None, first=draw(st.integers(0, 9)))
    for sets in [[np.ones(users)], *rounds, [draw(learned)]]:
        builder.append(*(np.flatnonzero(row) for row in sets))
    return builder.build()


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(log=logs(named=False), size=st.sampled_from([1, 3, 256]))
def test_numbered_users_come_back(tmp_path_factory, form, log, size):
    """A log without names comes back as it was, given the number of users."""
    path = tmp_path_factory.getbasetemp() / f"numbered.{form}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_PIECE", size)
        write_log(log, path)
        assert only_log(path, users=log.users) == log


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(log=logs(named=True), size=st.sampled_from([1, 3, 256]))
@example(log=ParticipationLog.from_dense([[1] * len(ODD)], names=sorted(ODD)), size=256)
def test_named_users_come_back(tmp_path_factory, form, log, size):
    """A log with names comes back as it was, whatever the names hold."""
    if all(name.isdigit() for name in log.names):  # then the order is by number: another test
        return
    path = tmp_path_factory.getbasetemp() / f"named.{form}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_PIECE", size)
        write_log(log, path)
        assert only_log(path) == log


@pytest.mark.parametrize("form", FORMS)
def test_rounds_without_a_result(tmp_path, form):
    """Rounds without a result are kept between two others; at the end they are lost, and given back."""
    log = ParticipationLog.from_dense([[0, 0], [1, 1], [0, 0], [1, 0], [0, 0], [0, 0]])
    path = tmp_path / f"log.{form}"
    write_log(log, path)
    assert only_log(path, users=2) == log.window(1, 4)
    assert only_log(path, users=2, rounds=5) == log.window(1, 6)
    assert only_log(path, users=2, rounds=3) == log.window(1, 4)
    with pytest.raises(UsageError, match="from round 1 to round 3: 3 rounds, more than the 2 given"):
        only_log(path, users=2, rounds=2)
    with pytest.raises(UsageError, match="at most 100000000"):
        only_log(path, users=2, rounds=10**9)


def csv_log(tmp_path, content, **options):
    path = tmp_path / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return only_log(path, **options)


@pytest.mark.parametrize(
    "content",
    [
        "round,user\n0,a\n0,b\n1,b\n",
        "user,round\nb,1\nb,0\na,0\n",
        "round,user\r\n1,b\r\n0,b\r\n0,a\r\n",
        "round,user\r1,b\r0,b\r0,a",
        "\ufeffround,user\n0,a\n0,b\n1,b",
        "round,user\n\n0,a\n0,b\n\n\n1,b\n\n",
        '"round","user"\n"0","a"\n00,b\n1,"b"\n',
        "set,user,round\n3,a,0\n3,b,0\n0,b,1\n",
    ],
)
@pytest.mark.parametrize("size", [1, 2, 256])
def test_forms_of_the_same_log(tmp_path, monkeypatch, content, size):
    """The order of rows and columns, line ends, blank lines, quotes and a byte-order mark change nothing."""
    monkeypatch.setattr(table, "_PIECE", size)
    log = csv_log(tmp_path, content)
    assert log == ParticipationLog.from_dense([[1, 1], [0, 1]], names=["a", "b"])


def test_several_sets_in_a_round(tmp_path):
    """The column `set` tells the learned sets of a round apart; its numbers matter only by their order."""
    log = csv_log(tmp_path, "round,user,set\n2,a,9\n2,b,9\n2,b,4\n5,a,4\n")
    assert [(round_, users.tolist()) for round_, users in log.sets()] == [(2, [1]), (2, [0, 1]), (5, [0])]
    write_log(log, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == "round,set,user\n2,0,b\n2,1,a\n2,1,b\n5,0,a\n"
    assert only_log(tmp_path / "again.csv") == log


@pytest.mark.parametrize(
    ("users", "given", "names"),
    [
        (["10", "9", "1"], None, ("1", "9", "10")),
        (["10", "9", "1"], 11, None),
        (["10", "9", "1"], 10, ("1", "9", "10", *(f"unseen-{k}" for k in range(1, 8)))),
        (["10", "9", "01"], None, ("01", "10", "9")),
        (["b", "a"], 2, ("a", "b")),
        (["unseen-1", "a"], 4, ("a", "unseen-1", "unseen-2", "unseen-3")),
        (["9" * 5000, "1"], 2, ("1", "9" * 5000)),
        (["-1", "0"], 2, ("-1", "0")),
        (["٣", "0"], 4, ("0", "٣", "unseen-1", "unseen-2")),
    ],
)
def test_order_and_names_of_users(tmp_path, users, given, names):
    """Names stand as they are, integers in numeric order; numbers below N need no names; the rest are unseen."""
    log = csv_log(tmp_path, "round,user\n" + "".join(f"0,{user}\n" for user in users), users=given)
    assert log.names == names
    assert log.users == (given or len(users))
    seen = next(log.sets())[1].tolist()
    assert seen == (sorted(map(int, users)) if names is None else sorted(map(names.index, users)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; its first line should be round,user"),
        ("round,user\n", "holds no rows"),
        ("round,user\n\n\n", "holds no rows"),
        ("round,user,user\n0,a,b\n", "line 1: the column 'user' stands there twice"),
        ("round,set\n0,1\n1,7\n", "line 1: no column is known to hold the user; the columns are 'round', 'set'"),
        ("round,a,b\n0,x,y\n", "line 1: no column is known to hold the user; .* with --user-column"),
        ("a,user,b\nq,x,y\n", "line 1: no column is known to hold the round; .* with --round-column"),
        ("round,user\n0,a\n1\n", "line 3: the header has 2 fields and this row 1; complete the row"),
        ("round,user\n0,a\n\n1,b,c\n", "line 4: the header has 2 fields and this row 3; .*--delimiter"),
        ("round,user\n0,\n", "line 2: a user has no name"),
        ('round,user\n0,"two\nlines"\n1,""\n', "line 4: a user has no name"),
        ('round,user\r\n0,"two\r\nlines"\r\n1,"a\rb"\r\n1,""\r\n', "line 6: a user has no name"),
        (
            "round,user\n0,a\nx,b\n",
            "line 3: the round 'x' is not an integer of 0 or more; .*--round-column",
        ),
        ("round,user\n0,a\n1.5,b\n", "line 3: the round '1.5' is not an integer of 0 or more"),
        ("round,user\n-1,a\n-1,b\n", "line 2: the round '-1' is not an integer of 0 or more"),
        ("round,user\n1_000,a\n1_000,b\n", "line 2: the round '1_000' is not"),
        ("round,user\n٣,a\n", "line 2: the round '٣' is not"),
        ("round,user\n²,a\n", "line 2: the round '²' is not"),
        ("round,user\n,a\n,b\n", "line 2: the round '' is not"),
        ("round,user\n2026-05-01,a\nsoon,b\n", "line 3: the round 'soon' is not a time"),
        ("round,user\n1" + "0" * 20 + ",a\n", "line 2: the round 10{20} is above 999999999999999999"),
        ('round,user\n0,"a\nb"\n1,"b\n2,c\n', "line 4: the row that begins here is not CSV"),
        ('round,user\n0,"a"b\n', "line 2: the row that begins here is not CSV"),
        ('round,user\n0,a\n1,"' + "b\n" * 70_000, "line 3: the row that begins here is not CSV"),
        ('"round,user\n0,a\n', "line 1: the row that begins here is not CSV"),
        (b"round,user\n0,a\n1,\xff\n", r"line 3: the user '\\udcff' is not text in UTF-8; save the file as UTF-8"),
        (b"round,user\n\xff,a\n", r"line 2: the round '\\udcff' is not an integer"),
        (b"round,user\n0,a\0b\n", r"line 2: the user 'a\\x00b' has a NUL byte"),
        (b"\0\0\0\0", "line 1: this is not text in UTF-8"),
        (b"PK\x03\x04....", "Excel workbook; .*save the sheet as CSV"),
        (b"\x1f\x8bnonsense", "is damaged: it is packed with gzip"),
        (
            "round,user\n5,a\n100000005,a\n",
            "line 3: from round 5 to round 100000005 there are 100000001 rounds, more than 20000000 for the 2",
        ),
        ("round,user\n0,a\n999999999999999999,a\n", "line 3: from round 0 to round 999999999999999999"),
    ],
)
@pytest.mark.parametrize("size", [1, 256])
def test_bad_files_are_refused(tmp_path, monkeypatch, content, message, size):
    """Whatever is wrong, the message names the file, the line, the value, and what to do."""
    monkeypatch.setattr(table, "_PIECE", size)
    with pytest.raises(UsageError, match=f"log.csv.*{message}"):
        csv_log(tmp_path, content)


@pytest.mark.parametrize(
    ("users", "message"), [(1, "names 2 users, more than the 1 given"), (0, "0 users were given")]
)
def test_too_few_users_are_refused(tmp_path, users, message):
    """The number of users must be at least that of the names in the file."""
    with pytest.raises(UsageError, match=message):
        csv_log(tmp_path, "round,user\n0,a\n0,b\n", users=users)


@pytest.mark.parametrize("form", FORMS)
def test_paths_are_explained(tmp_path, form):
    """A path that cannot be read or written is explained."""
    log = ParticipationLog.from_dense([[1]])
    with pytest.raises(UsageError, match=f"log.{form} cannot be read: there is no such file"):
        only_log(tmp_path / f"log.{form}")
    with pytest.raises(UsageError, match="its folder does not exist"):
        write_log(log, tmp_path / "missing" / f"log.{form}")
    (tmp_path / f"log.{form}").mkdir()
    with pytest.raises(UsageError, match="it is a folder"):
        only_log(tmp_path / f"log.{form}")


def test_a_log_is_written_in_the_form_that_its_name_says(tmp_path):
    """The end of the name, in any case, says the form that is written; what is read needs no such name."""
    log = ParticipationLog.from_dense([[1]])
    with pytest.raises(UsageError, match=r"must end in .csv or .parquet"):
        write_log(log, tmp_path / "log.txt")
    write_log(log, tmp_path / "LOG.CSV")
    (tmp_path / "LOG.CSV").rename(tmp_path / "log")
    assert only_log(str(tmp_path / "log"), users=1) == log


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (ParticipationLog.from_dense([[1]], rounds=[-1]), "round -1 cannot be written"),
        (ParticipationLog.from_dense([[1]], names=[""]), "a user has no name"),
        (ParticipationLog.from_dense([[1]], names=["\0"]), "NUL byte"),
        (ParticipationLog.from_dense([[1]], names=["\ud800"]), "not text in UTF-8"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_what_could_not_be_read_is_not_written(tmp_path, log, message, form):
    """A log that no reader would take is not written."""
    with pytest.raises(UsageError, match=message):
        write_log(log, tmp_path / f"log.{form}")
    assert list(tmp_path.iterdir()) == []


def parquet_log(tmp_path, **columns):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return only_log(path)


@pytest.mark.parametrize(
    "users",
    [
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.chunked_array([["b", "a"], ["b"]]),
        pa.chunked_array([pa.array(["b", "a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]),
    ],
)
def test_types_of_users(tmp_path, users):
    """Strings of any kind are names."""
    for kind in (pa.int8(), pa.uint64(), pa.int64()):
        log = parquet_log(tmp_path, round=pa.array([0, 0, 1], kind), user=users)
        assert log == ParticipationLog.from_dense([[1, 1], [0, 1]], names=["a", "b"])


@given(
    values=st.lists(st.integers(-3, 40) | st.integers(-(2**62), 2**62), min_size=1, max_size=60),
    as_text=st.booleans(),
    packed=st.booleans(),
)
def test_the_texts_of_a_column_come_in_the_order_of_their_first_rows(tmp_path_factory, values, as_text, packed):
    """Whatever the type, the dictionary that the file keeps, and its parts."""
    texts = list(map(str, values))
    column = pa.array(texts) if as_text else pa.array(values, pa.int64())
    if packed:
        distinct = sorted(set(texts))
        column = pa.DictionaryArray.from_arrays(pa.array(map(distinct.index, texts)), pa.array(distinct))
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table({"user": column}), path, row_group_size=20, store_schema=False)
    different, places = Columns(read_source(path)).column(0, strict=True)
    assert different == list(dict.fromkeys(texts))
    assert [different[place] for place in places] == texts


def test_integers_as_users(tmp_path):
    """Integers are names, too, in their decimal form and numeric order."""
    assert parquet_log(tmp_path, round=[0, 0], user=[10, 9]).names == ("9", "10")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"round": [0]}, "no column is known to hold the user; the columns are 'round': .* --user-column"),
        ({"round": [0.5], "user": ["a"]}, "row 1: the round '0.5' is not an integer"),
        ({"round": [0], "user": [["a"]]}, "the column 'user' holds list"),
        ({"round": [0, None], "user": ["a", "b"]}, r"row 2: the column 'round' is empty \(null\)"),
        ({"round": [0, 1], "user": [None, "b"]}, r"row 1: the column 'user' is empty \(null\)"),
        ({"round": [0, 1, -2], "user": ["a", "b", "c"]}, "row 3: the round '-2' is not an integer of 0"),
        ({"round": pa.array([2**64 - 1], pa.uint64()), "user": ["a"]}, "row 1: the round 18446744073709551615"),
        ({"round": [0, 0], "user": ["a", ""]}, "row 2: a user has no name"),
        ({"round": pa.array([], pa.int64()), "user": pa.array([], pa.string())}, "holds no rows"),
    ],
)
def test_bad_columns_are_refused(tmp_path, columns, message):
    """Wrong types, nulls and impossible values are refused with the row and what to do."""
    with pytest.raises(UsageError, match=f"log.parquet.*{message}"):
        parquet_log(tmp_path, **columns)


def test_bad_text_in_parquet_is_refused(tmp_path):
    """A string column whose bytes are no UTF-8 is refused."""
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    with pytest.raises(UsageError, match=r"log.parquet is not a readable Parquet file"):
        parquet_log(tmp_path, round=[0], user=bad)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    """However the file is cut or spoilt, it is refused as a caller's error, or its content is unharmed."""
    path = tmp_path / "log.parquet"
    write_log(ParticipationLog.from_dense([[1, 1], [0, 1]], names=["a", "b"]), path)
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(UsageError, match="is not a readable Parquet file"):
            only_log(path)
    for place in range(4, len(data) - 8, 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            only_log(path)
        except UsageError as error:
            assert "log.parquet" in str(error)  # noqa: PT017 - not every spoilt byte can be noticed


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    """Without pyarrow, Parquet says what to install, and CSV works."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    log = ParticipationLog.from_dense([[1]])
    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    for attempt in (lambda: only_log(tmp_path / "log.parquet"), lambda: write_log(log, tmp_path / "x.parquet")):
        with pytest.raises(UsageError, match=r"pip install 'coterie\[parquet\]'"):
            attempt()
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.parquet"]
    write_log(log, tmp_path / "log.csv")


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(online=stn.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 1)))
def test_availability_comes_back(tmp_path_factory, form, online):
    """A record of who was online is read from rows (round, user), from the first round to the last."""
    online[:, 0] = 1  # a round with nobody online cannot be written
    path = tmp_path_factory.getbasetemp() / f"online.{form}"
    write_log(ParticipationLog.from_dense(online), path)
    log = read_availability(path, users=online.shape[1])
    assert np.array_equal(log.online, online.astype(np.bool_))
    assert log.names is None


def test_availability_with_names(tmp_path):
    """Names come along, and users that were never online are added."""
    path = tmp_path / "online.csv"
    path.write_text("round,user\n3,b\n4,a\n4,b\n")
    log = read_availability(path, users=3)
    assert log.online.tolist() == [[False, True, False], [True, True, False]]
    assert log.names == ("a", "b", "unseen-1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("round,set,user\n0,0,a\n", "has the column 'set'"),
        ("round,user\n3,a\n5,a\n", "no row for round 4, though it goes on to round 5"),
        ("round,user\n0,a\n99999999,b\n", "from round 0 to round 99999999 there are 100000000 rounds"),
    ],
)
def test_bad_availability_is_refused(tmp_path, content, message):
    """What is no record of who was online, or is too large for one, is refused before memory is taken."""
    path = tmp_path / "online.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_availability(path)
