"""What a ledger promises, on every database."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie import BatchPlan, UsageError
from coterie.federation.ledger import BusyError, DamagedError, Ledger, StaleError, State
from coterie.federation.ledger.ledger import verify
from coterie.federation.ledger.store import Record
from support.forked import CONTEXT
from support.ledgers import (
    LEARNED,
    NAMES,
    PLAN,
    cohort_of,
    cohort_of_users,
    database,
    federation,
    known,
    round_as_plain,
    ticking,
)


def test_a_new_ledger_is_empty_and_sound(location):
    """It has one record, a name of its own, no users, no plan and no rounds; verification finds nothing."""
    with Ledger.create(location) as ledger:
        assert (ledger.head.count, ledger.users, ledger.plan, ledger.next_round, ledger.steps) == (
            1,
            0,
            None,
            0,
            0,
        )
        assert len(ledger.id) == 32
        assert ledger.log().rounds == 0
        assert verify(location).sound
    with pytest.raises(UsageError, match=r"exists already|there is a ledger"):
        Ledger.create(location)


def test_a_ledger_can_be_opened_or_made(location):
    """Where there is none one is made, and where there is one it is opened, whatever is in it."""
    with Ledger.open_or_create(location) as ledger:
        ledger.enrol(["ana"])
    with Ledger.open_or_create(location) as again:
        assert (again.id, again.names) == (ledger.id, ("ana",))


def test_everything_comes_back_after_opening_again(location):
    """What was stored is what a later process reads: state, rounds, log."""
    with federation(location) as ledger:
        before = known(ledger), [round_as_plain(each) for each in ledger.rounds()], ledger.log()
    with Ledger.open(location, read_only=True) as ledger:
        assert (known(ledger), [round_as_plain(each) for each in ledger.rounds()], ledger.log()) == before
    assert verify(location).sound


def test_the_log_holds_what_was_learned_or_must_be_assumed(location):
    """Committed and abandoned sets as told; an unfinished sealed round as each of its batches by itself."""
    with federation(location) as ledger:
        log = ledger.log()
        assert {round_: [users.tolist() for users in sets] for round_, sets in log.by_round() if sets} == {
            round_: [list(users) for users in sets] for round_, sets in LEARNED.items()
        }
        assert (log.rounds, log.first, log.names) == (5, 0, tuple(NAMES))
        snapshot = ledger.snapshot()
        assert (snapshot.assumed_rounds, snapshot.unknown_rounds, snapshot.plain_rounds) == ((4,), (), ())


def test_counts_and_steps_are_the_committed_and_the_closed_rounds(location):
    """Counts come from committed rounds alone; every closed round but an unfinished one is a step."""
    with federation(location) as ledger:
        committed = [users for round_ in (0, 2) for users in LEARNED[round_]]
        assert ledger.counts.tolist() == [sum(user in users for users in committed) for user in range(12)]
        assert (ledger.next_round, ledger.steps) == (5, 4)


def test_rounds_tell_the_whole_story(location):
    """Each round has its state, cohort, losses, reasons, metrics, also noted ones, checkpoints and times."""
    with federation(location) as ledger:
        rounds = list(ledger.rounds())
    assert [each.state for each in rounds] == [
        State.COMMITTED,
        State.SKIPPED,
        State.COMMITTED,
        State.ABANDONED,
        State.UNFINISHED,
    ]
    first, skipped, second, abandoned, unfinished = rounds
    assert first.cohort == cohort_of(PLAN, [0, 1, 3])
    assert (first.sealed, first.protocol, first.plan) == (True, "open", 1)
    assert (
        first.terms == "51d2361f4faea3bc8f9facdbc7d99abb555596a2e51f7b25fd3b41c93587e616"
    )  # printf terms | sha256sum
    assert (first.lost, first.metrics) == ({1: "no answer"}, {"loss": 0.5, "accuracy": 0.75})
    assert first.files == {"model.pt": "ab" * 32}
    assert first.closed - first.opened == 1000
    assert (skipped.cohort, skipped.reason) == (None, "too few batches are whole")
    assert second.lost == {1: "user 5 left"}
    assert (abandoned.reason, len(abandoned.learned)) == ("the model diverged", 1)
    assert (len(unfinished.learned), unfinished.assumed, unfinished.unknown) == (2, True, False)


def test_of_an_unfinished_round_without_a_seal_everybody_counts_as_alone(location):
    """Any sum of it may be known: each user that was asked is a learned set, from the opening on."""
    with Ledger.create(location) as ledger:
        ledger.enrol(NAMES)
        with ledger.claim() as left:
            assert left is None
            ledger.open_round(cohort_of_users([1, 2]), sealed=False, protocol="secagg")
            assert ledger.snapshot().unknown_rounds == (0,)
        with ledger.claim() as left:
            assert left == 0
            assert ledger.open_round(cohort_of_users([1, 2]), sealed=False, protocol="secagg") == 1
            ledger.commit_round(1, [[1, 2]])
        snapshot = ledger.snapshot()
        assert (snapshot.unknown_rounds, snapshot.assumed_rounds) == ((0,), ())
        sets = [[users.tolist() for users in sets] for _, sets in snapshot.log.by_round()]
        assert sets == [[[1], [2]], [[1, 2]]]


def test_a_plain_round_names_its_users_alone(location):
    """The server saw every update: the same users as a sum are refused, and the round stays open."""
    with Ledger.create(location) as ledger:
        ledger.enrol(NAMES)
        with ledger.claim():
            ledger.open_round(cohort_of_users([1, 2]), sealed=False, protocol="plain")
            for close in (
                lambda: ledger.commit_round(0, [[1, 2]]),
                lambda: ledger.commit_round(0, [[1, 2]], alone=[1, 2]),
                lambda: ledger.abandon_round(0, "nobody", [[1, 2]]),
            ):
                with pytest.raises(
                    UsageError, match=r"round 0 is plain, .*: name its users as alone, not as a sum"
                ):
                    close()
            ledger.commit_round(0, [], alone=[1, 2])
        assert [users.tolist() for users in ledger.rounds()[0].exposure] == [[1], [2]]


def test_who_only_reads_reads_every_record_once(location, monkeypatch):
    """Opening and a snapshot take the records in once; the snapshot is the one that reading again gives."""
    with federation(location) as ledger:
        expected = ledger.snapshot()
    times = Counter()
    follows = Record.follows

    def counted(record, previous):
        times[record.seq] += 1
        return follows(record, previous)

    monkeypatch.setattr(Record, "follows", counted)
    with Ledger.open(location, read_only=True) as ledger:
        first, second = ledger.snapshot(), ledger.snapshot()
    assert times == dict.fromkeys(range(1, expected.head.count + 1), 1)
    for each in (first, second):
        assert (each.head, each.names, each.files, each.steps) == (
            expected.head, expected.names, expected.files, expected.steps,
        )  # fmt: skip
        assert [round_as_plain(one) for one in each.rounds] == [round_as_plain(one) for one in expected.rounds]
        assert each.partition.tolist() == expected.partition.tolist()


def test_what_came_late_is_added_to_its_round(location):
    """A set that late messages completed is a further row of that round, also while another round is open."""
    with federation(location) as ledger:
        before = ledger.counts.tolist()
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [2]), sealed=True, protocol="open")
            ledger.expose(0, [range(3, 6)])
            ledger.commit_round(5, [range(6, 9)])
        ledger.expose(2, [], alone=[5])
        first, _, second, *_ = ledger.rounds()
        assert (first.late, [users.tolist() for users in first.exposure][-1]) == (1, [3, 4, 5])
        assert (second.late, second.alone.tolist(), second.unknown) == (0, [5], True)
        assert ledger.counts.tolist() == [n + (6 <= user < 9) for user, n in enumerate(before)]
        with Ledger.open(location, read_only=True) as again:
            assert again.log() == ledger.log()


def test_a_retired_batch_is_asked_no_more(location):
    """The ledger keeps the reason, refuses a cohort with the batch, and tells who was retired."""
    with federation(location) as ledger:
        ledger.retire([1], "lost in 10 rounds in a row")
        assert ledger.retired.tolist() == [False, True, False, False]
        with ledger.claim(), pytest.raises(UsageError, match="asks a batch that was retired"):
            ledger.open_round(cohort_of(PLAN, [0, 1]), sealed=True, protocol="open")
        (change,) = ledger.snapshot().retired
        assert (change.since, change.users.tolist(), change.reason) == (5, [3, 4, 5], "lost in 10 rounds in a row")


def test_an_override_and_what_it_costs_are_told(location):
    """The plan that splits is taken after the override; the partition is the common refinement of both plans."""
    halves = BatchPlan.from_batches(12, 3, [[0, 1, 3, 4, 5], [2, 6, 7, 8], range(9, 12)])
    with federation(location) as ledger:
        with pytest.raises(UsageError, match="or have all its owners override it"):
            ledger.publish_plan(halves)
        ledger.override([0, 1, 2], "a study ended")
        ledger.publish_plan(halves)
        assert ledger.snapshot().partition.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        with ledger.claim():
            number = ledger.open_round(cohort_of(halves, [0]), sealed=True, protocol="open")
            ledger.commit_round(number, [[0, 1, 3, 4, 5]])
        snapshot = ledger.snapshot()
        assert [each.users.tolist() for each in snapshot.overrides] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        parts = [np.flatnonzero(snapshot.partition == part).tolist() for part in range(5)]
        assert sorted(parts) == [[0, 1], [2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_files_are_bound_once(location):
    """What a ledger belongs to is fixed; it comes back after opening."""
    with federation(location) as ledger:
        ledger.bind({"spec": "ab" * 32})
        with pytest.raises(UsageError, match="'spec' is bound already"):
            ledger.bind({"spec": "cd" * 32})
        with pytest.raises(DamagedError, match="'files' cannot be"):
            ledger.bind({"data": "not a digest"})
        with Ledger.open(location, read_only=True) as again:
            assert again.files == again.snapshot().files == {"spec": "ab" * 32}


def test_one_coordinator_at_a_time(location):
    """While one ledger is claimed another cannot be, nor the same twice; afterwards it can."""
    with federation(location) as one, Ledger.open(location) as two:
        with one.claim():
            with pytest.raises(BusyError, match="another coordinator runs the rounds"), two.claim(wait=0):
                pass
            with pytest.raises(UsageError, match="claimed already"), one.claim():
                pass
            with pytest.raises(UsageError, match=r"claim .* first"):
                two.skip_round("never")
        with two.claim():
            assert two.skip_round("now") == 5
        with one.claim():
            assert one.skip_round("and again") == 6
        two.refresh()
        assert known(one) == known(two)


def test_rounds_belong_to_a_claim(location):
    """Outside of a claim no round can be opened, closed or skipped."""
    with federation(location) as ledger:
        for use in (
            lambda: ledger.open_round(cohort_of(PLAN, [0]), sealed=True, protocol="open"),
            lambda: ledger.commit_round(0, []),
            lambda: ledger.abandon_round(0, "why"),
            lambda: ledger.skip_round("why"),
        ):
            with pytest.raises(UsageError, match="rounds are run by one coordinator at a time"):
                use()


def test_what_others_appended_is_taken_in(location):
    """An operation that comes second is made anew on what came first; numbers of users never overlap."""
    with federation(location) as one, Ledger.open(location) as two:
        assert one.enrol(["x", "y"]) == range(12, 14)
        assert two.enrol(["z"]) == range(14, 15)
        with pytest.raises(UsageError, match="'x' is enrolled already"):
            two.enrol(["x"])
        one.refresh()
        assert known(one) == known(two)


def test_two_plans_are_never_made_of_one(location):
    """Who publishes a plan without having seen the one in force is told so; so is a cohort of an older plan."""
    with federation(location) as one, Ledger.open(location) as two:
        merged = BatchPlan.from_batches(12, 3, [range(6), range(6, 9), range(9, 12)])
        one.publish_plan(merged)
        with pytest.raises(StaleError):
            two.publish_plan(merged)
        assert (two.plan_number, two.plan) == (2, one.plan)
        stale = Ledger.open(location)
        one.publish_plan(BatchPlan.from_batches(12, 3, [range(6), range(6, 12)]))
        with pytest.raises(StaleError):
            stale.add_charters({0: b"of the batch 0 that was"})
        stale.close()


def test_charters_stay_with_batches_that_stay(location):
    """A batch that goes on with the same members keeps its charter, under its new number; others do not."""
    with federation(location) as ledger:
        assert ledger.charters == {0: b"charter 0", 2: b"charter 2"}
        ledger.publish_plan(BatchPlan.from_batches(12, 3, [range(6, 9), range(6), range(9, 12)]))
        assert ledger.charters == {0: b"charter 2"}
        with pytest.raises(UsageError, match="batch 0 has a charter already"):
            ledger.add_charters({0: b"other"})
        ledger.add_charters({1: b"of six"})
        with Ledger.open(location) as again:
            assert again.charters == {0: b"charter 2", 1: b"of six"}


def test_looking_at_charters_costs_nothing_and_what_was_seen_stays(location):
    """They are asked for batch by batch, so they are not copied; one more makes another mapping."""
    with federation(location) as ledger:
        before, files = ledger.charters, ledger.files
        assert ledger.charters is before
        assert ledger.files is files
        ledger.add_charters({1: b"charter 1"})
        ledger.bind({"spec": "ab" * 32})
        assert before == {0: b"charter 0", 2: b"charter 2"}
        assert (files, sorted(ledger.charters)) == ({}, [0, 1, 2])


@pytest.mark.parametrize(
    ("learned", "lost", "message"),
    [
        ([range(3, 6)], None, "user 3 was not asked in round 0"),
        ([[0, 3]], None, "user 3 was not asked in round 0"),
        ([[0, 0]], None, "a user stands twice"),
        ([[]], None, "a learned set has no users"),
        ([[12]], None, "user 12 is not one of the 12 users"),
        ([range(3)], {1: "gone"}, "batch 1 was not asked in round 0"),
        ([range(3)], {0: "\ud800"}, "is not valid text"),
    ],
)
def test_what_cannot_have_been_learned_is_refused(location, learned, lost, message):
    """A learned set is a set of users that were asked; a refused commit leaves the round open."""
    with Ledger.create(location) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
        with ledger.claim():
            ledger.open_round(cohort_of(PLAN, [0, 2]), sealed=True, protocol="open")
            before = known(ledger)
            with pytest.raises(UsageError, match=message):
                ledger.commit_round(0, learned, lost)
            assert known(ledger) == before
            ledger.commit_round(0, [range(3)])


def test_terms_are_kept_by_a_digest_or_not_at_all(location):
    """What is no SHA-256 is refused before the round is opened."""
    with Ledger.create(location) as ledger:
        ledger.enrol(NAMES)
        ledger.publish_plan(PLAN)
        with ledger.claim():
            with pytest.raises(UsageError, match="the digest of the terms has 5 bytes; give 32, or none"):
                ledger.open_round(cohort_of(PLAN, [0, 2]), sealed=True, protocol="open", terms_digest=b"terms")
            assert ledger.open_round(cohort_of(PLAN, [0, 2]), sealed=True, protocol="open") == 0
        assert [each.terms for each in ledger.rounds()] == [""]


def test_odd_numbers_and_texts_are_kept(location):
    """Metrics that are not numbers, numpy's scalars, and any text in names, reasons and protocols come back."""
    with Ledger.create(location) as ledger:
        odd = ["Zoë 🦊", "a\nb", '"', "\x7f\u2028", "x" * 5000]
        ledger.enrol(odd, [b"", None, b"\0" * 99, b"\n", None])
        with ledger.claim():
            number = ledger.skip_round("why\n\t\x01 'not' 🦊")
        ledger.note(number, {"loss": math.nan, "top\n": np.float32(0.5), "n": np.int64(2**60), "inf": -math.inf})
        with pytest.raises(UsageError, match="the metric 'bad' is 'x'"):
            ledger.note(number, {"bad": "x"})
        with Ledger.open(location) as again:
            assert again.names == tuple(odd)
            assert [again.key_of(user) for user in range(5)] == [b"", None, b"\0" * 99, b"\n", None]
            (only,) = again.rounds()
            assert only.reason == "why\n\t\x01 'not' 🦊"
            assert math.isnan(only.metrics["loss"])
            assert (only.metrics["top\n"], only.metrics["n"], only.metrics["inf"]) == (
                0.5,
                float(2**60),
                -math.inf,
            )


@pytest.mark.parametrize(
    ("names", "keys", "message"),
    [
        ([], None, "0 names were given"),
        (["new", "new"], None, "two users have the same name"),
        (["new", NAMES[3]], None, "'user 3' is enrolled already"),
        (["new", ""], None, "name is empty"),
        (["new\0"], None, "NUL"),
        (["\ud800"], None, "is not valid text"),
        (["new"], [b"a", b"b"], "1 names were given with 2 keys"),
    ],
)
def test_users_that_cannot_be_enrolled(location, names, keys, message):
    """Every user needs a name of its own that any file can hold; nothing of a refused enrolment stays."""
    with federation(location) as ledger:
        before = known(ledger)
        with pytest.raises(UsageError, match=message):
            ledger.enrol(names, keys)
        assert known(ledger) == before
        assert ledger.enrol(["new"]) == range(12, 13)


def test_a_summary_counts_what_happened(location):
    """How rounds ended, how often each batch was asked, learned and lost, and what was retired."""
    with federation(location) as ledger:
        summary = ledger.snapshot()
        assert {state.value: count for state, count in summary.states.items()} == {
            "open": 0,
            "committed": 2,
            "abandoned": 1,
            "unfinished": 1,
            "skipped": 1,
        }
        assert summary.times_asked.tolist() == [2, 2, 3, 2]
        assert summary.times_included.tolist() == [1, 0, 1, 1]
        assert summary.times_lost.tolist() == [0, 2, 0, 0]
        ledger.enrol(["x"])
        ledger.publish_plan(BatchPlan.from_batches(12, 3, [range(6), range(9, 12)]))
        summary = ledger.snapshot()
        assert [(each.since, each.users.tolist()) for each in summary.retired] == [(5, [6, 7, 8])]
        assert (summary.waiting, summary.times_asked.tolist(), len(summary.rounds)) == (1, [2, 2], 5)
        assert summary.rounds[0].metrics == {"loss": 0.5, "accuracy": 0.75}


# Random stories.


class _Story:
    """Drives a ledger through operations drawn at random, and keeps a plain account of its own."""

    def __init__(self, ledger, draw):
        self.ledger, self.draw = ledger, draw
        self.users, self.rounds = 0, []

    def act(self):
        ledger, pick = self.ledger, self.draw
        action = pick(st.sampled_from(["enrol", "plan", "round", "round", "round", "skip", "leave", "note"]))
        if action == "enrol":
            count = pick(st.integers(1, 4))
            ledger.enrol([f"u{self.users + each}" for each in range(count)])
            self.users += count
        elif action == "plan" and self.users:
            self._plan()
        elif action == "skip":
            with ledger.claim():
                ledger.skip_round("drawn")
            self.rounds.append([])
        elif action == "note" and self.rounds:
            ledger.note(pick(st.integers(0, len(self.rounds) - 1)), {"x": pick(st.floats(allow_nan=False))})
        elif action in ("round", "leave") and self.users and (ledger.plan is None or len(ledger.plan)):
            self._round(finished=action == "round")

    def _plan(self):
        """Any grouping: the ledger takes it or refuses it."""
        groups = self.draw(st.lists(st.integers(-1, 3), min_size=self.users, max_size=self.users))
        batches = [[u for u, g in enumerate(groups) if g == group] for group in range(4)]
        batches = [batch for batch in batches if batch]
        smallest = min((len(batch) for batch in batches), default=1)
        plan = BatchPlan.from_batches(self.users, self.draw(st.integers(1, smallest)), batches)
        try:
            self.ledger.publish_plan(plan)
        except UsageError:
            return

    def _round(self, *, finished):
        ledger, pick = self.ledger, self.draw
        plan = ledger.plan
        pool = range(self.users if plan is None else len(plan))
        asked = pick(st.lists(st.sampled_from(pool), min_size=1, unique=True))
        cohort = cohort_of_users(asked) if plan is None else cohort_of(plan, asked)
        sealed = plan is not None and pick(st.booleans())
        subsets = st.lists(st.sampled_from(cohort.users.tolist()), min_size=1, unique=True)
        learned = pick(st.lists(subsets, max_size=3))
        with ledger.claim():
            number = ledger.open_round(cohort, sealed=sealed, protocol="drawn")
            if finished and pick(st.booleans()):
                ledger.commit_round(number, learned, {asked[0]: "drawn"})
            elif finished:
                ledger.abandon_round(number, "drawn", learned)
        with ledger.claim():
            pass
        if finished:
            self.rounds.append([sorted(each) for each in learned])
        else:
            worst = [sorted(plan.batch(b).tolist()) for b in sorted(asked)] if sealed else None
            self.rounds.append(worst if sealed else [[user] for user in cohort.users.tolist()])


_fresh = itertools.count()


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), length=st.integers(0, 14))
def test_the_state_kept_is_the_state_replayed(location, data, length):
    """After any story: what the ledger kept equals what its records add up to, and the log what was learned."""
    place = f"{location}_{next(_fresh)}"
    with Ledger.create(place, clock=ticking()) as ledger:
        story = _Story(ledger, data.draw)
        for _ in range(length):
            story.act()
        with Ledger.open(place, read_only=True) as again:
            assert known(again) == known(ledger)
        log = ledger.log()
        assert [[users.tolist() for users in sets] for _, sets in log.by_round()] == story.rounds
        assert verify(place).findings == ()


# Two processes.


def _enrol_all(location, mark, count, pipe):
    with Ledger.open(location) as ledger:
        pipe.send("ready")
        pipe.recv()
        pipe.send([ledger.enrol([f"{mark}{each}"]).start for each in range(count)])


def _run_all(location, mark, count, pipe):
    with Ledger.open(location) as ledger:
        pipe.send("ready")
        pipe.recv()
        won = []
        while len(won) < count:
            try:
                with ledger.claim(wait=20) as left:
                    assert left is None
                    number = ledger.open_round(cohort_of_users([0]), sealed=False, protocol=mark)
                    ledger.commit_round(number, [[0]])
            except BusyError:
                continue
            won.append(number)
        pipe.send(won)


@pytest.mark.parametrize(("work", "count"), [(_enrol_all, 150), (_run_all, 100)])
def test_two_processes_race_and_exactly_one_wins_each(location, work, count):
    """Two processes that enrol, or run rounds, at the same time: every number is given once, none is left out."""
    with Ledger.create(location) as ledger:
        ledger.enrol(["first"])
    pipes, processes = [], []
    for mark in "ab":
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=work, args=(location, mark, count, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    for action in (lambda pipe: pipe.recv(), lambda pipe: pipe.send("go")):
        for pipe in pipes:
            action(pipe)
    won = [number for pipe in pipes for number in pipe.recv()]
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    first = 1 if work is _enrol_all else 0
    assert sorted(won) == list(range(first, first + 2 * count))
    assert verify(location).sound
    with database(location) as run:
        assert run("SELECT count(*), max(seq) FROM record")[0] == run("SELECT count, count FROM head")[0]
