"""Whatever is changed behind a ledger's back is found and named."""

import itertools
import zlib

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.federation.ledger import DamagedError, Ledger
from coterie.federation.ledger.ledger import verify
from coterie.federation.ledger.store import BEGINNING, Head, Record, open_store
from support.ledgers import database, federation

_COLUMNS = ("time", "kind", "body", "hash")
_fresh = itertools.count()


def _edited(value, draw):
    """Return another value of the same type."""
    if isinstance(value, int):
        return draw(st.integers(-(2**63), 2**63 - 1))
    if isinstance(value, str):
        return draw(st.sampled_from(["created", "enrolled", "opened", "closed", "noted", "skipped", "x"]))
    place = draw(st.integers(0, max(0, len(value) - 1)))
    kind = draw(st.sampled_from(["flip", "cut", "more"]))
    if kind == "flip" and value:
        return value[:place] + bytes([value[place] ^ 1 << draw(st.integers(0, 7))]) + value[place + 1 :]
    return value[:place] if kind == "cut" else value + b"\0"


def _edit(run, count, draw):
    seq, column = draw(st.integers(1, count)), draw(st.sampled_from(_COLUMNS))
    ((before,),) = run(f"SELECT {column} FROM record WHERE seq = ?", seq)  # noqa: S608 - ours
    after = _edited(before, draw)
    assume(after != before)
    run(f"UPDATE record SET {column} = ? WHERE seq = ?", after, seq)  # noqa: S608
    return {seq}


def _delete(run, count, draw):
    seq = draw(st.integers(1, count))
    run("DELETE FROM record WHERE seq = ?", seq)
    return {seq}


def _swap(run, count, draw):
    one, two = draw(st.lists(st.integers(1, count), min_size=2, max_size=2, unique=True))
    for old, new in ((one, -1), (two, one), (-1, two)):
        run("UPDATE record SET seq = ? WHERE seq = ?", new, old)
    return {one, two}


def _cut(run, count, draw):
    left = draw(st.integers(0, count - 1))
    run("DELETE FROM record WHERE seq > ?", left)
    return {count}


def _insert(run, count, draw):
    after = draw(st.integers(1, count))
    at = draw(st.sampled_from([0, -5, count + 1, count + 7]))
    ((*row,),) = run("SELECT time, kind, hash, body FROM record WHERE seq = ?", after)
    run("INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)", at, *row)
    return {at, count, count + 1}


def _move_head(run, count, draw):
    if draw(st.booleans()):
        seq = draw(st.integers(1, count - 1))
        run("UPDATE head SET count = ?, hash = (SELECT hash FROM record WHERE seq = ?)", seq, seq)
    elif draw(st.booleans()):
        run("UPDATE head SET hash = ?", bytes(32))
    else:
        run("DELETE FROM head")
    return set(range(count + 2))


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(data=st.data(), change=st.sampled_from([_edit, _edit, _delete, _swap, _cut, _insert, _move_head]))
def test_every_change_of_the_rows_is_found_and_named(whole, data, change):
    """An edited, missing, moved or added record, a cut tail or a moved head is found, at its number."""
    location, restore, count = whole
    with database(location) as run:
        try:
            where = change(run, count, data.draw)
            verdict = verify(location)
            assert not verdict.sound
            assert where & {finding.seq for finding in verdict.findings}
        finally:
            restore(run)
    assert verify(location).sound


@pytest.fixture
def whole(location):
    """A sound ledger, how to put it back, and how many records it has."""
    federation(location).close()
    with database(location) as run:
        rows, heads = run("SELECT seq, time, kind, hash, body FROM record"), run("SELECT count, hash FROM head")

    def restore(run):
        run("DELETE FROM record")
        run("DELETE FROM head")
        for row in rows:
            run("INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)", *row)
        run("INSERT INTO head (count, hash) VALUES (?, ?)", *heads[0])

    return location, restore, len(rows)


def test_all_that_is_wrong_is_named_not_only_the_first(whole):
    """Two edits far apart, a missing record and a cut tail are four findings, in one go."""
    location, _, count = whole
    with database(location) as run:
        run("UPDATE record SET time = time + 1 WHERE seq = 3")
        run("UPDATE record SET time = time + 1 WHERE seq = 6")
        run("DELETE FROM record WHERE seq = 9")
        run("DELETE FROM record WHERE seq = ?", count)
    found = {(finding.seq, finding.kind) for finding in verify(location).findings}
    assert {(3, "planned"), (6, "closed"), (9, ""), (count, "head")} <= found


def test_a_damaged_ledger_is_not_gone_on_with(whole):
    """Opening refuses it and says what to do; so does one that was being written when it happened."""
    location, _, count = whole
    with Ledger.open(location) as ledger:
        ledger.note(0, {"seconds": 1.5})
        with database(location) as run:
            run("UPDATE record SET time = time + 1 WHERE seq = 4")
        with pytest.raises(
            DamagedError, match="record 4 is not the one that was written; run coterie ledger verify"
        ):
            Ledger.open(location)
        with database(location) as run:
            run("DELETE FROM record WHERE seq = ?", count)
        with pytest.raises(DamagedError, match="record 4 is not the one"):
            list(ledger.rounds())


def _rewritten(location):
    """Write a ledger anew, sound in itself, without its third record from the end on."""
    store = open_store(location, read_only=True)
    records = list(store.read(0))
    store.close()
    head = Head(0, BEGINNING)
    with database(location) as run:
        run("DELETE FROM record")
        for old in records[:-2]:
            time = old.time + (head.count > 5)
            new = Record.after(head.hash, head.count + 1, time, old.kind, old.body)
            row = (new.seq, new.time, new.kind, new.hash, new.body)
            run("INSERT INTO record (seq, time, kind, hash, body) VALUES (?, ?, ?, ?, ?)", *row)
            head = Head(new.seq, new.hash)
        run("UPDATE head SET count = ?, hash = ?", head.count, head.hash)
    return records


def test_a_consistent_rewriting_shows_only_against_a_head_kept_elsewhere(whole):
    """The chain is sound in itself; a head from before the part that was rewritten is there, a later is not."""
    location, _, _ = whole
    records = _rewritten(location)
    assert verify(location).sound
    early = verify(location, earlier=records[3].hash)
    assert (early.sound, early.later) == (True, len(records) - 2 - 4)
    late = verify(location, earlier=records[-3].hash)
    assert (late.sound, late.later) == (False, None)
    assert "written anew" in late.findings[-1].what


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("unheard", zlib.compress(b"{}\n")),
        ("skipped", zlib.compress(b'{"reason":"x","round":0}\n')),
        ("skipped", zlib.compress(b'{"round":5,"reason":"x"}\n')),
        ("skipped", zlib.compress(b'{"reason":"x","round":5}\n ')),
        ("skipped", b'{"reason":"x","round":5}\n'),
        ("closed", b"\xff\xfe"),
        ("created", zlib.compress(b'{"ledger":"x","version":2}\n')),
    ],
)
def test_a_record_that_breaks_the_rules_is_found_though_its_hash_fits(whole, kind, body):
    """Somebody who appends by hand, with a right hash and head, still has to keep the rules of history."""
    location, _, count = whole
    store = open_store(location, read_only=False)
    head = store.head()
    store.append([Record.after(head.hash, head.count + 1, 0, kind, body)], head)
    store.close()
    (finding,) = verify(location).findings
    assert (finding.seq, finding.kind) == (count + 1, kind)
    with pytest.raises(UsageError, match=f"record {count + 1} "):
        Ledger.open(location)
