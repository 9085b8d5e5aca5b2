"""The order of a round: the ledger knows the cohort before it is asked, and what was learned before it is used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import TooFewUsersError, UsageError
from coterie.federation.coordinator import Coordinator
from coterie.federation.ledger import BusyError, Ledger, State
from coterie.selection import BatchSelector, RandomSelector, consecutive, join, leave
from support.federation.aggregations import Scripted, check_sound, everybody, outcome_of, raising

USERS = 12
EVERYONE = np.ones(USERS, dtype=bool)


class Died(BaseException):
    """What ends a coordinator from outside, in the middle of anything."""


@pytest.fixture
def place(tmp_path):
    """A ledger of twelve users in six batches."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol([f"user-{i}" for i in range(USERS)])
        ledger.publish_plan(consecutive(USERS, 2))
    return tmp_path


@pytest.fixture
def ledger(place):
    with Ledger.open(place) as ledger:
        yield ledger


def coordinator(ledger, seed=5):
    return Coordinator(ledger, lambda plan: BatchSelector(plan, per_round=6), seed)


def last(ledger):
    return list(ledger.rounds())[-1]


def test_a_cohort_is_on_record_before_it_is_asked(place, ledger):
    """While users are asked, any reader of the ledger finds the round open, and its cohort as the worst."""
    seen = []

    def act(round_, cohort):
        with Ledger.open(place, read_only=True) as other:
            seen.append(
                (other.snapshot().open_round, other.counts.sum(), len(list(other.log().sets())), round_, cohort)
            )
        return everybody(round_, cohort)

    coordinator(ledger).run_round(EVERYONE, Scripted(act, name="sum", sealed=False))
    [(record, counted, sets, round_, cohort)] = seen
    assert (record.number, record.state, record.protocol, record.sealed) == (round_, State.OPEN, "sum", False)
    assert record.cohort == cohort
    assert (counted, sets) == (0, len(cohort))


def test_what_was_learned_is_on_record_before_it_is_returned(place, ledger):
    """A result is in the caller's hands only after every other process can read its learned sets."""

    def act(round_, cohort):
        first, *others = cohort.batches.tolist()
        users = np.concatenate([ledger.plan.batch(batch) for batch in others])
        return outcome_of(
            round_, cohort, [np.sort(users)], np.array([users.mean()]), lost={first: "2 of 2 users did not answer"}
        )

    outcome = coordinator(ledger).run_round(EVERYONE, Scripted(act))
    with Ledger.open(place, read_only=True) as other:
        record = last(other)
    assert (outcome.state, outcome.round, len(outcome.included)) == ("committed", 0, 4)
    assert outcome.mean == [record.learned[0].mean()]
    assert record.state is State.COMMITTED
    assert [users.tolist() for users in record.learned] == [outcome.learned[0].tolist()]
    assert record.lost == {int(outcome.cohort.batches[0]): "2 of 2 users did not answer"}


def test_a_result_can_be_kept_before_it_is_committed(place, ledger):
    """`before_commit` has the result while the round is open; if it fails, the round counts as one that died."""
    runner, kept = coordinator(ledger), []

    def keep(outcome):
        with Ledger.open(place, read_only=True) as other:
            kept.append((outcome.round, other.snapshot().open_round.number, outcome.mean.tolist()))
        if outcome.round == 1:
            raise OSError("the disk is full")
        return {"result": "ab" * 32}

    outcome = runner.run_round(EVERYONE, Scripted(everybody), keep)
    assert kept == [(0, 0, outcome.mean.tolist())]
    with pytest.raises(OSError, match="the disk is full"):
        runner.run_round(EVERYONE, Scripted(everybody), keep)
    runner.run_round(EVERYONE, Scripted(everybody), keep)
    runner.run_round(EVERYONE, Scripted(raising(TooFewUsersError("lost"))), keep)
    assert [round_ for round_, _, _ in kept] == [0, 1, 2]
    states = [State.COMMITTED, State.UNFINISHED, State.COMMITTED, State.ABANDONED]
    assert [each.state for each in check_sound(place)] == states


def test_too_few_users_abandon_the_round(place, ledger):
    """A round that nobody could finish is over, with the reason, without a result and without anybody counted."""
    outcome = coordinator(ledger).run_round(EVERYONE, Scripted(raising(TooFewUsersError("3 of 6 are left"))))
    assert (outcome.state, outcome.reason, outcome.mean, len(outcome.included)) == (
        "abandoned",
        "3 of 6 are left",
        None,
        0,
    )
    record = last(ledger)
    assert (record.state, record.reason, record.learned) == (State.ABANDONED, "3 of 6 are left", ())
    assert record.cohort == outcome.cohort
    assert (ledger.steps, ledger.counts.sum()) == (1, 0)
    check_sound(place)


def test_sums_without_a_mean_are_learned_all_the_same(ledger):
    """What an abandoned round had learned stays in the log that is judged, though it serves nobody."""

    def act(round_, cohort):
        batch = ledger.plan.batch(int(cohort.batches[0]))
        return outcome_of(round_, cohort, [batch], None, reason="too few are left")

    outcome = coordinator(ledger).run_round(EVERYONE, Scripted(act))
    assert (outcome.state, outcome.reason, len(outcome.included)) == ("abandoned", "too few are left", 0)
    [(round_, users)] = ledger.log().sets()
    assert (round_, users.tolist()) == (0, ledger.plan.batch(int(outcome.cohort.batches[0])).tolist())
    assert ledger.counts.sum() == 0


def test_what_may_not_be_asked_is_abandoned_and_raised(place, ledger):
    """A caller's mistake ends its round before it is raised; the next round goes on with the next number."""
    runner = coordinator(ledger)
    with pytest.raises(UsageError, match="the terms could wrap around"):
        runner.run_round(EVERYONE, Scripted(raising(UsageError("the terms could wrap around"))))
    record = last(ledger)
    assert (record.state, record.reason) == (State.ABANDONED, "the terms could wrap around")
    assert runner.step == 1
    assert runner.run_round(EVERYONE, Scripted(everybody)).round == 1
    check_sound(place)


@pytest.mark.parametrize("error", [RuntimeError("bug"), OSError("network"), KeyboardInterrupt(), Died()])
def test_a_round_that_died_is_counted_and_its_number_never_used_again(place, ledger, error):
    """Any other exception leaves the round open; the next call finds it so, and asks the same cohort anew."""
    runner = coordinator(ledger)
    runner.run_round(EVERYONE, Scripted(everybody))
    asked = []

    def act(round_, cohort):
        asked.append((round_, cohort))
        if len(asked) == 1:
            raise error
        return everybody(round_, cohort)

    with pytest.raises(type(error)):
        runner.run_round(EVERYONE, Scripted(act))
    with Ledger.open(place, read_only=True) as other:
        assert other.snapshot().open_round.number == 1
    assert runner.step == 1
    outcome = runner.run_round(EVERYONE, Scripted(act))
    assert (outcome.round, runner.step) == (2, 2)
    assert asked[0][1] == asked[1][1]
    assert [each.state for each in check_sound(place)] == [State.COMMITTED, State.UNFINISHED, State.COMMITTED]


def test_a_learned_set_that_nobody_asked_for_is_not_committed(place, ledger):
    """A claim about users outside the cohort is refused, and the round counts as one that died."""
    runner = coordinator(ledger)

    def act(round_, cohort):
        stranger = np.setdiff1d(np.arange(USERS), cohort.users)
        return outcome_of(round_, cohort, [stranger], np.zeros(1))

    with pytest.raises(UsageError, match="was not asked in round 0"):
        runner.run_round(EVERYONE, Scripted(act))
    assert runner.run_round(EVERYONE, Scripted(everybody)).round == 1
    assert [each.state for each in check_sound(place)] == [State.UNFINISHED, State.COMMITTED]


def test_a_round_without_a_cohort_is_skipped(place, ledger):
    """Too few whole batches: nobody is asked, and the round has its number and its reason."""
    one_each = np.arange(USERS) % 2 == 0
    outcome = coordinator(ledger).run_round(one_each, Scripted(raising(AssertionError("nobody may be asked"))))
    assert (outcome.round, outcome.state, outcome.cohort, outcome.mean) == (0, "skipped", None, None)
    assert "do not fill a cohort" in outcome.reason
    assert (last(ledger).state, last(ledger).reason) == (State.SKIPPED, outcome.reason)
    assert ledger.steps == 1
    check_sound(place)


ACCIDENTS = st.lists(st.sampled_from(["dies", "dies and restarts", "restarts"]), max_size=2)
STEPS = st.lists(st.tuples(ACCIDENTS, st.sampled_from(["everybody", "too few", "nobody there"])), max_size=6)


@given(steps=STEPS, seed=st.integers(0, 3))
@settings(max_examples=25)
def test_deaths_and_restarts_change_nothing_that_comes_after(new_folder, steps, seed):
    """The cohorts of a coordinator that dies and starts again are those of one that never stopped."""
    folder = new_folder()
    ledger = Ledger.create(folder)
    ledger.enrol([f"user-{i}" for i in range(USERS)])
    ledger.publish_plan(consecutive(USERS, 2))
    found, runner = [], coordinator(ledger, seed)
    for accidents, end in steps:
        there = EVERYONE & (end != "nobody there")
        for accident in accidents:
            if accident.startswith("dies") and there.any():
                with pytest.raises(Died):
                    runner.run_round(there, Scripted(raising(Died())))
            if accident.endswith("restarts"):
                ledger.close()
                ledger = Ledger.open(folder)
                runner = coordinator(ledger, seed)
        act = raising(TooFewUsersError("lost")) if end == "too few" else everybody
        outcome = runner.run_round(there, Scripted(act))
        found.append(None if outcome.cohort is None else outcome.cohort.users.tolist())
    ledger.close()
    check_sound(folder)
    assert found == uninterrupted([end for _, end in steps], seed)


def uninterrupted(ends, seed):
    """The cohorts of a run without a ledger and without an accident."""
    counts, cohorts = np.zeros(USERS, dtype=np.int64), []
    selector = BatchSelector(consecutive(USERS, 2), per_round=6)
    for step, end in enumerate(ends):
        cohort = selector.choose(EVERYONE & (end != "nobody there"), counts, np.random.default_rng([seed, step]))
        counts[[] if end != "everybody" else cohort.users] += 1
        cohorts.append(None if cohort is None else cohort.users.tolist())
    return cohorts


def test_one_coordinator_at_a_time_is_in_a_round(place, ledger):
    """A second coordinator is refused while the first is inside a round, and served when it is over."""
    with Ledger.open(place) as other:
        first, second = coordinator(ledger), coordinator(other)

        def act(round_, cohort):
            with pytest.raises(BusyError):
                second.run_round(EVERYONE, Scripted(everybody))
            return everybody(round_, cohort)

        assert first.run_round(EVERYONE, Scripted(act)).state == "committed"
        assert second.run_round(EVERYONE, Scripted(everybody)).round == 1
    assert [each.state for each in check_sound(place)] == [State.COMMITTED] * 2


def test_two_coordinators_that_take_turns_run_one_federation(place, ledger):
    """Whoever's turn it is goes on from what both have done: the cohorts are those of one coordinator alone."""
    with Ledger.open(place) as other:
        runners = coordinator(ledger), coordinator(other)
        turns = [0, 1, 1, 0, 0, 0, 1, 0, 1, 1]
        shared = [runners[turn].run_round(EVERYONE, Scripted(everybody)).cohort.users.tolist() for turn in turns]
    assert shared == uninterrupted(["everybody"] * len(turns), seed=5)
    assert len({each.coordinator for each in check_sound(place)}) == 2


def test_a_plan_of_another_process_is_taken_up_by_the_next_round(place, ledger):
    """Between rounds a batch retires and newcomers join: the next cohorts are of the new plan, by its batches."""
    runner = coordinator(ledger)
    runner.run_round(EVERYONE, Scripted(everybody))
    with Ledger.open(place) as other:
        newcomers = other.enrol(["new-0", "new-1"])
        other.publish_plan(join(leave(other.plan, [0]), 2, names=["new-0", "new-1"]))
    asked = set()
    for _ in range(4):
        outcome = runner.run_round(np.ones(14, dtype=bool), Scripted(everybody))
        assert outcome.cohort.users.tolist() == ledger.plan.users_of(outcome.cohort.batches).tolist()
        asked |= set(outcome.cohort.users.tolist())
    assert asked == {*range(2, USERS), *newcomers}
    assert {each.plan for each in check_sound(place)} == {1, 2}


@pytest.mark.parametrize("able", [None, EVERYONE], ids=["no word on who is ready", "everybody of the plan is"])
def test_newcomers_without_a_plan_are_not_asked(ledger, able):
    """Enrolled users who stand in no plan yet are available to no round, sealed or not."""
    runner = coordinator(ledger)
    ledger.enrol(["new-0", "new-1"])
    for _ in range(4):
        outcome = runner.run_round(np.ones(14, dtype=bool), Scripted(everybody, able=able))
        assert outcome.state == "committed"
    assert ledger.counts[USERS:].tolist() == [0, 0]


def test_users_that_the_caller_has_not_heard_of_count_as_away(place, ledger):
    """Another process may enrol and plan newcomers at any time; a round with the old availability goes on."""
    runner = coordinator(ledger)
    with Ledger.open(place) as other:
        other.enrol(["new-0", "new-1"])
        other.publish_plan(join(other.plan, 2, names=["new-0", "new-1"]))
    outcome = runner.run_round(EVERYONE, Scripted(everybody))
    assert (outcome.state, ledger.plan.users, ledger.counts[USERS:].sum()) == ("committed", 14, 0)


def test_users_who_are_not_ready_are_not_asked(ledger):
    """A batch of which some member cannot be asked counts as one that is not there."""
    able = EVERYONE.copy()
    able[[0, 5]] = False
    runner = coordinator(ledger)
    for _ in range(4):
        runner.run_round(EVERYONE, Scripted(everybody, able=able))
    assert np.flatnonzero(ledger.counts == 0).tolist() == [0, 1, 4, 5]


def test_without_a_plan_everybody_enrolled_can_be_asked(tmp_path):
    """Schemes without batches run too, newcomers included from their first round on."""
    with Ledger.create(tmp_path) as ledger:
        ledger.enrol(["a", "b", "c"])
        runner = Coordinator(ledger, lambda plan: RandomSelector(3 if ledger.users == 3 else 4), seed=1)
        assert runner.run_round(np.ones(3, dtype=bool), Scripted(everybody)).included.tolist() == [0, 1, 2]
        ledger.enrol(["d"])
        again = Coordinator(ledger, lambda plan: RandomSelector(4), seed=1)
        assert again.run_round(np.ones(4, dtype=bool), Scripted(everybody)).included.tolist() == [0, 1, 2, 3]
    check_sound(tmp_path)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_round_that_died_counts_as_the_worst_that_it_can_have_been(ledger, sealed):
    """Sealed, each batch asked counts as learned by itself; otherwise each user does, and it is told why."""
    runner = coordinator(ledger)
    with pytest.raises(Died):
        runner.run_round(EVERYONE, Scripted(raising(Died()), name="open", sealed=sealed))
    runner.run_round(EVERYONE, Scripted(everybody, name="open", sealed=sealed))
    died, after = ledger.rounds()
    assert died.state is State.UNFINISHED
    whole = [(1, after.learned[0].tolist())]
    if sealed:
        alone = [(0, sorted(ledger.plan.batch(int(batch)).tolist())) for batch in died.cohort.batches]
        assert [(round_, users.tolist()) for round_, users in ledger.log().sets()] == alone + whole
        assert (ledger.snapshot().assumed_rounds, ledger.snapshot().unknown_rounds) == ((0,), ())
    else:
        alone = [(0, [user]) for user in died.cohort.users.tolist()]
        assert [(round_, users.tolist()) for round_, users in ledger.log().sets()] == alone + whole
        assert (ledger.snapshot().assumed_rounds, ledger.snapshot().unknown_rounds) == ((), (0,))
    assert ledger.counts.sum() == 6
