"""What a database must do for a ledger: append in one step or not at all, in one order, for one at a time."""

import pytest

from coterie import UsageError
from coterie.federation.ledger import BusyError, Head, StaleError
from coterie.federation.ledger.store import BEGINNING, Record, open_store
from support.forked import CONTEXT

FIRST = Record.after(BEGINNING, 1, 7, "created", b"{}")


def chain(before, bodies):
    """Records that follow a head."""
    records, head = [], before
    for body in bodies:
        records.append(Record.after(head.hash, head.count + 1, -5, "any kind: é", body))
        head = Head(records[-1].seq, records[-1].hash)
    return records


@pytest.fixture
def store(location):
    """A store with its first record."""
    store = open_store(location, first=FIRST)
    yield store
    store.close()


def test_records_come_back_as_they_were(store, location):
    """Any bytes, in order, from any number on, also in another connection and over many pieces."""
    records = [FIRST, *chain(store.head(), [b"", b"\0\xff" * 50_000, *(b"%d" % each for each in range(600))])]
    store.append(records[1:300], store.head())
    store.append(records[300:], store.head())
    other = open_store(location, read_only=True)
    for each in (store, other):
        assert list(each.read(0)) == records
        assert list(each.read(299)) == records[299:]
        assert list(each.read(len(records))) == []
        assert each.head() == Head(len(records), records[-1].hash)
    other.close()


def test_an_append_that_does_not_follow_changes_nothing(store):
    """Neither an older head nor the right number with another hash is taken for the head."""
    before = store.head()
    one, two = chain(before, [b"one", b"two"])
    store.append([one], before)
    for expected in (before, Head(2, bytes(32)), Head(3, one.hash)):
        with pytest.raises(StaleError):
            store.append([two], expected)
    assert list(store.read(0)) == [FIRST, one]
    store.append([two], Head(2, one.hash))


def test_an_append_is_whole_or_not_at_all(store):
    """If the second of two records is refused by the database, the first is not there either."""
    one, two = chain(store.head(), [b"one", b"two"])
    again = Record(one.seq, two.time, two.kind, two.body, two.hash)
    before = store.head()
    with pytest.raises(UsageError):
        store.append([one, again], before)
    assert (list(store.read(0)), store.head()) == ([FIRST], before)
    store.append([one, two], before)


def test_the_lease_is_for_one_at_a_time(store, location):
    """Who comes second is told at once; leaving the block gives it back, also after an exception."""
    other = open_store(location, read_only=False)
    with store.lease(), pytest.raises(BusyError), other.lease():
        pass
    with pytest.raises(KeyError), other.lease():
        raise KeyError
    with store.lease():
        store.append(chain(store.head(), [b"under the lease"]), store.head())
        assert other.head() == store.head()
    other.close()


def _append_all(location, mark, tries, barrier, pipe):
    """Try to follow the same head as the other process, at the same time; tell in which tries that succeeded."""
    store = open_store(location, read_only=False)
    won = []
    for each in range(tries):
        head = store.head()
        barrier.wait(20)
        try:
            store.append(chain(head, [mark]), head)
        except StaleError:
            pass
        else:
            won.append(each)
        barrier.wait(20)
    pipe.send(won)
    store.close()


def test_of_two_processes_exactly_one_appends_each_record(store, location):
    """Two processes that both try to follow the same head, 300 times: each time one wins, the other is told."""
    barrier = CONTEXT.Barrier(2)
    pipes, processes = [], []
    for mark in (b"a", b"b"):
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_append_all, args=(location, mark, 300, barrier, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    one, two = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    assert sorted(one + two) == list(range(300))
    records = list(store.read(1))
    assert [record.seq - 2 for record in records if record.body == b"a"] == one
    before = FIRST
    for record in records:
        assert record.follows(before.hash)
        before = record


def test_readers_see_what_the_holder_of_the_lease_is_at(store, location):
    """What was announced is seen elsewhere while the lease is held, the last of it, and nothing afterwards."""
    other = open_store(location, read_only=True)
    assert other.announcement() is None
    with store.lease():
        store.announce("coterie round 0 phase 0 asked 4")
        store.announce("coterie round 0 phase 1 asked 3")
        assert other.announcement() == "coterie round 0 phase 1 asked 3"
        with pytest.raises(BusyError), other.lease():
            pass
    assert other.announcement() is None
    other.close()
