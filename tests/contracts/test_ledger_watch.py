"""Following a ledger: many small looks see what one look at the end sees, and what the log says."""

import numpy as np
import pytest

from coterie import BatchPlan
from coterie.errors import UsageError
from coterie.federation.ledger import Ledger, Phase, State
from coterie.leakage.measures import measure
from coterie.pages.dashboard import LedgerWatch
from support.ledgers import cohort_of, ticking

PLAN = BatchPlan.from_batches(12, 3, [range(3), range(3, 6), range(6, 9), range(9, 12)])


@pytest.fixture
def ledger(location):
    """A ledger with twelve users in four batches, and no round yet."""
    with Ledger.create(location, clock=ticking()) as ledger:
        ledger.enrol([f"user {user}" for user in range(12)])
        ledger.publish_plan(PLAN)
        yield ledger


def happen(ledger, rng):
    """Let one thing happen in a claimed ledger: mostly a round, of any kind and outcome."""
    kind = rng.integers(8)
    if kind == 0:
        ledger.skip_round("nobody is there")
    elif kind == 1:
        ledger.enrol([f"newcomer {ledger.users}"])
    elif kind == 2 and ledger.next_round:
        ledger.expose(int(rng.integers(ledger.next_round)), [PLAN.batch(int(rng.integers(4)))])
    elif kind == 3 and ledger.next_round:
        ledger.note(ledger.next_round - 1, {"accuracy": float(rng.random()), "loss": float("nan")})
    else:
        batches = np.sort(rng.choice(4, 2, replace=False))
        number = ledger.open_round(cohort_of(PLAN, batches), sealed=True, protocol="open")
        lost = {int(batches[0]): "user 1 did not answer"} if rng.random() < 0.3 else {}
        learned = [PLAN.batch(int(batch)) for batch in batches if int(batch) not in lost]
        if rng.random() < 0.2:
            ledger.abandon_round(number, "too few", learned)
        else:
            ledger.commit_round(number, learned, lost)


@pytest.mark.parametrize("seed", range(4))
def test_many_looks_see_what_one_look_sees(ledger, location, seed):
    """Users join, sums come late, numbers are noted: a watch that follows agrees with one that comes last."""
    rng, watch = np.random.default_rng(seed), LedgerWatch(location)
    with ledger.claim():
        for _ in range(30):
            happen(ledger, rng)
            seen = watch.look()
    late = LedgerWatch(location)
    fresh, oracle = late.look(), measure(ledger.log())
    for name, column in fresh.columns.items():
        np.testing.assert_array_equal(seen.columns[name], column, name)
    assert seen.measures == fresh.measures == oracle.final
    assert fresh.columns["fairness_gap"].tolist() == pytest.approx(oracle.fairness_gap.tolist())
    accuracies = [each.metrics.get("accuracy", np.nan) for each in ledger.rounds()]
    np.testing.assert_array_equal(fresh.columns["accuracy"], accuracies)
    assert np.isnan(fresh.columns["loss"]).all()
    assert fresh.verdict is not None
    assert fresh.audited == len(fresh.rounds)
    assert fresh.level == fresh.verdict.strong
    for each in (watch, late):
        each.close()


def test_an_open_round_is_shown_and_not_counted(ledger, location):
    """The round at work is there with its phase; measures are of those over; without a lease it is cut off."""
    watch = LedgerWatch(location)
    with ledger.claim():
        number = ledger.open_round(cohort_of(PLAN, [0, 2]), sealed=False, protocol="secagg")
        ledger.announce(Phase(number, 1, 6))
        running = watch.look()
        assert (running.live, running.cut_off, running.phase) == (True, False, Phase(number, 1, 6))
        assert running.current.state is State.OPEN
        assert (running.rounds, running.level, running.verdict) == ((), None, None)
    gone = watch.look()
    assert (gone.live, gone.cut_off, gone.phase) == (False, True, None)
    with ledger.claim():
        assert not watch.look().cut_off  # the next coordinator counts the round as the worst it can have been
    assert watch.look().snapshot.unknown_rounds == (0,)
    assert watch.look().level is None
    watch.close()


def test_a_ledger_that_cannot_be_read_for_a_while_is_read_again(ledger, location):
    """A look that fails says why; the next one opens the ledger anew and sees everything."""
    watch = LedgerWatch(location)
    watch.look()
    watch._ledger.close()  # noqa: SLF001 - as a database that restarts would
    with pytest.raises(UsageError):
        watch.look()
    with ledger.claim():
        ledger.skip_round("nobody is there")
    assert len(watch.look().rounds) == 1
    watch.close()
