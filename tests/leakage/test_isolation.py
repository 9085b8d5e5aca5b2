"""The audit's levels and isolated users equal brute force over the rationals, whatever the prime."""

from itertools import chain

import numpy as np
import pytest
from flint import nmod_mat
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie import ParticipationLog, UsageError
from coterie.leakage import Audit, isolation
from coterie.leakage.elimination import random_primes
from support.leakage import rational
from support.leakage.hard_logs import dense, doubling_cycle, learned, random_selection, small_logs

PRIMES = st.lists(st.sampled_from([2, 3, 5, 7, 11]), max_size=3)


def finished(log, primes=()):
    """An audit that has proven all it can."""
    tried = chain(primes, random_primes(np.random.default_rng(1)))
    audit = Audit.of(log, np.random.default_rng(0), primes=tried)
    assert audit.settle()
    for _ in audit.refine(lambda: 60.0):
        pass
    return audit


@settings(deadline=None, max_examples=400)
@given(small_logs(), PRIMES)
@example(ParticipationLog.from_dense([[0, 0, 0]]), [])
@example(doubling_cycle(2), [3])
def test_everything_equals_brute_force_over_the_rationals(log, primes):
    """Both levels, who is isolated and since which round are right, even where small primes propose nonsense."""
    rows = dense(log)
    audit = finished(log, primes)
    assert audit.strong.level == rational.strong_level(rows)
    assert audit.weak.exact
    assert audit.weak.high == rational.weak_level(rows)
    assert audit.strong.level <= audit.weak.high
    since = {user: log.row_rounds()[row] for user, row in rational.isolated_since(rows).items()}
    assert {found.user: found.round for found in audit.isolated} == since


def test_thousands_of_random_logs():
    """Three thousand drawn logs of up to five users: levels and isolated users are those of brute force."""
    rng = np.random.default_rng(0)
    for _ in range(3000):
        rows = rng.random((rng.integers(1, 6), rng.integers(1, 6))) < rng.random()
        log = ParticipationLog.from_dense(rows.astype(int))
        audit = finished(log)
        assert audit.strong.level == rational.strong_level(dense(log))
        assert (audit.weak.low, audit.weak.high) == (rational.weak_level(dense(log)),) * 2
        assert sorted(found.user for found in audit.isolated) == rational.isolated_users(dense(log))


@settings(deadline=None, max_examples=100)
@given(small_logs(), PRIMES)
def test_every_proof_holds_when_checked_by_other_code(log, primes):
    """Isolating combinations and the weak level's witness give what they claim, with fractions, from the log."""
    sets = learned(log)
    audit = finished(log, primes)
    for found in audit.isolated:
        assert rational.isolates(found.proof, found.user, sets)
        assert found.proof.isolates(found.user, log)
        if hasattr(found.proof, "numerators"):
            assert max(log.set_rounds[index] for index in found.proof.sets) == found.round
    everyone = audit.combinations([found.user for found in audit.isolated])
    assert all(rational.isolates(proof, user, sets) for user, proof in everyone.items())
    if sets:
        assert sum(entry != 0 for entry in rational.combined(audit.weak.witness, sets)) == audit.weak.high


@settings(deadline=None, max_examples=100)
@given(small_logs())
def test_round_by_round_is_the_same_as_at_once(log):
    """Appending a round to a finished audit gives what an audit of the longer log gives."""
    growing = Audit(log.users, np.random.default_rng(0), first=log.first)
    for round_, sets in log.by_round():
        growing.append(*sets)
        assert growing.settle()
        for _ in growing.refine(lambda: 60.0):
            pass
        whole = finished(log.window(log.first, round_ + 1))
        assert growing.strong.level == whole.strong.level
        assert (growing.weak.low, growing.weak.high) == (whole.weak.low, whole.weak.high)
        assert [(f.user, f.round) for f in growing.isolated] == [(f.user, f.round) for f in whole.isolated]


def hidden_modulo(prime, log):
    """Whether nobody is isolated modulo the prime: a null vector has no zero."""
    null, count = nmod_mat(dense(log), prime).nullspace()
    return count == 1 and all(int(null[user, 0]) for user in range(log.users))


@pytest.mark.parametrize("doublings", [3, 5, 7, 31])
def test_a_prime_that_hides_everyone_is_found_out(doublings):
    """Everyone is isolated over the rationals and nobody modulo the first prime: the audit says everyone."""
    log = doubling_cycle(doublings)
    prime = 2**doublings - 1
    assert hidden_modulo(prime, log)
    audit = Audit.of(log, np.random.default_rng(0), primes=chain([prime], random_primes(np.random.default_rng(1))))
    assert audit.rank == log.users - 1  # what the prime says
    assert audit.settle()
    assert audit.rank == len(audit.isolated) == log.users
    sets = dense(log)
    proofs = audit.combinations([0, 1, log.users - 1])
    assert all(rational.isolates(proof, user, sets) for user, proof in proofs.items())


def test_the_log_that_hides_everyone_from_a_61_bit_prime():
    """183 users, all isolated over the rationals, none modulo 2^61 - 1: the audit says all."""
    log = doubling_cycle(61)
    assert hidden_modulo(2**61 - 1, log)
    audit = finished(log)
    assert len(audit.isolated) == 183
    assert (audit.weak.low, audit.weak.high) == (1, 1)


def test_random_selection_isolates_everyone_soon_after_round_n():
    """120 users, 12 a round: at most 12 until round 108, then N - rank + 1, and soon after round 120 everyone."""
    log = random_selection(120, 12, 126, np.random.default_rng(2))
    audit, ranks = Audit(120, np.random.default_rng(0)), []
    for round_, sets in log.by_round():
        audit.append(*sets)
        ranks.append(audit.rank)
        if round_ in (20, 60, 100, 112, 116, 118):
            audit.sketch()
            assert audit.weak.low <= audit.weak.high <= min(12, 120 - ranks[-1] + 1)
            assert rational.combined(audit.weak.witness, dense(log)).count(0) == 120 - audit.weak.high
    assert audit.settle()
    assert len(audit.isolated) == 120
    assert 108 < min(found.round for found in audit.isolated) <= max(found.round for found in audit.isolated) < 126


def test_whole_batches_are_exact_at_any_length():
    """Batches of six: both levels are six, proven, after three thousand rounds; nobody is isolated."""
    rng = np.random.default_rng(0)
    audit = Audit(120, rng)
    for _ in range(3000):
        batches = rng.choice(20, size=2, replace=False)
        audit.append((batches[:, None] * 6 + np.arange(6)).ravel())
    assert audit.settle()
    for _ in audit.refine(lambda: 10.0):
        pass
    assert (audit.strong.level, audit.weak.low, audit.weak.high) == (6, 6, 6)
    assert audit.isolated == []


def test_a_sketch_is_cheap_right_and_the_same_each_time():
    """Without a clock or a solver: the bracket holds the truth, and a second audit sketches the same."""
    log = random_selection(30, 6, 20, np.random.default_rng(4))
    truth = finished(log).weak
    one, other = (Audit.of(log, np.random.default_rng(0)).sketch() for _ in range(2))
    assert (one.low, one.high) == (other.low, other.high)
    assert one.low <= truth.low <= truth.high <= one.high
    hidden = Audit.of(doubling_cycle(3), np.random.default_rng(0), primes=chain([7], [101]))
    assert (hidden.sketch().low, hidden.sketch().high) == (1, 1)


def test_stopping_keeps_what_is_proven():
    """Stopped at once an audit proves nothing wrong: the bracket holds the truth, and nobody is named in error."""
    log = random_selection(30, 6, 26, np.random.default_rng(4))
    truth = finished(log)
    audit = Audit.of(log, np.random.default_rng(0))
    before = audit.weak
    assert before.low <= truth.weak.low <= truth.weak.high <= before.high
    for bracket in audit.refine(lambda: 60.0):
        assert bracket.low <= truth.weak.low <= truth.weak.high <= bracket.high
        break
    halted = Audit.of(log, np.random.default_rng(0), should_stop=lambda: True)
    assert not halted.complete
    assert (halted.settle(), halted.isolated) == (False, [])
    assert halted.strong.level == truth.strong.level


def test_too_many_classes_leave_the_strong_level(monkeypatch):
    """Beyond the limit nothing is eliminated: the strong level and the smallest set bound the weak one."""
    monkeypatch.setattr(isolation, "MOST_CLASSES", 3)
    log = random_selection(12, 4, 20, np.random.default_rng(0))
    audit = Audit.of(log, np.random.default_rng(0))
    assert not audit.complete
    assert list(audit.refine(lambda: 10.0)) == []
    assert (audit.strong.level, audit.weak.low, audit.weak.high) == (1, 1, 4)


def test_only_isolated_users_have_a_combination():
    """Asked for a user who is not isolated, never seen, or whose class is isolated as a whole, it says so."""
    audit = Audit(6, np.random.default_rng(0))
    for members in ([0, 1], [2], [3, 4]):
        audit.append(members)
    assert audit.combinations([2])[2].sets == (1,)
    for user in (0, 3, 5):
        with pytest.raises(UsageError, match=f"user {user} is not isolated"):
            audit.combinations([2, user])


def test_nothing_learned():
    """Without a sum both levels are N, and there is nothing to prove."""
    audit = Audit(5, np.random.default_rng(0))
    audit.append()
    assert audit.settle()
    assert (audit.weak.low, audit.weak.high, audit.weak.witness) == (5, 5, None)
