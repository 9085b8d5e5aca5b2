"""The weak level where shortcuts go wrong, and brackets that never exclude the truth."""

from itertools import chain

import numpy as np
import pytest
from flint import fmpz_mat
from scipy.optimize import Bounds, LinearConstraint, milp

from coterie import ParticipationLog
from coterie.leakage import Audit, weak_level
from coterie.leakage.elimination import Echelon, random_primes
from support.leakage import rational
from support.leakage.hard_logs import dense, doubling_chain, planted, random_selection


def bracket(log, seconds=60.0):
    """The audit of a log after the search had its time."""
    audit = Audit.of(log, np.random.default_rng(0))
    for _ in audit.refine(lambda: seconds):
        pass
    return audit.weak


def steps(log, count):
    """The bracket after so many pieces of work."""
    audit = Audit.of(log, np.random.default_rng(0))
    for _, _ in zip(range(count), audit.refine(lambda: 60.0), strict=False):
        pass
    return audit.weak


def least_row_weight(rows):
    """What the least row of one echelon form says."""
    form, _, rank = fmpz_mat(rows).rref()
    return min(sum(form[row, column] != 0 for column in range(len(rows[0]))) for row in range(rank))


@pytest.mark.parametrize(
    ("rows", "echelon", "level"),
    [
        ([[1, 1, 1, 1, 1, 1, 0, 1], [0, 1, 0, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 1, 1, 1]], 6, 2),
        (
            [
                [1, 1, 0, 0, 1, 1, 0, 0, 1],
                [1, 0, 0, 1, 0, 1, 0, 0, 1],
                [1, 1, 1, 1, 1, 0, 0, 1, 1],
                [1, 0, 1, 0, 1, 1, 1, 0, 0],
            ],
            6,
            3,
        ),
        ([[0, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1]], 4, 2),
    ],
)
def test_one_echelon_form_overstates_the_level(rows, echelon, level):
    """The least row weight of the echelon form is above the truth, which brute force and the audit agree on."""
    assert least_row_weight(rows) == echelon
    assert rational.weak_level(rows) == level
    found = bracket(ParticipationLog.from_dense(rows))
    assert (found.low, found.high) == (level, level)


def big_m(rows, user, large):
    """The fewest entries of a combination that is 1 at `user`, as a float program with |v_i| ≤ M s_i sees it."""
    matrix = np.array(rows, dtype=float)
    count, users = matrix.shape
    bound = large * np.eye(users)
    result = milp(
        np.concatenate((np.zeros(count), np.ones(users))),
        integrality=np.concatenate((np.zeros(count), np.ones(users))),
        bounds=Bounds(
            np.concatenate((np.full(count, -np.inf), np.zeros(users))),
            np.concatenate((np.full(count, np.inf), np.ones(users))),
        ),
        constraints=[
            LinearConstraint(np.hstack((matrix.T, -bound)), -np.inf, 0),
            LinearConstraint(np.hstack((-matrix.T, -bound)), -np.inf, 0),
            LinearConstraint(np.concatenate((matrix[:, user], np.zeros(users)))[None], 1, 1),
        ],
    )
    return round(result.fun)


def test_a_big_m_program_is_wrong_where_the_audit_is_not():
    """37 users in a chain of doublings: T = 2, a float program with a big M says that user 0 stands alone."""
    log = doubling_chain(12)
    rows = dense(log)
    assert big_m(rows, user=0, large=1e4) == 1
    assert rational.isolated_users(rows) == []
    found = bracket(log)
    assert (found.low, found.high) == (2, 2)
    assert sum(entry != 0 for entry in rational.combined(found.witness, rows)) == 2


@pytest.mark.parametrize(("users", "rounds", "weight"), [(60, 20, 5), (100, 40, 3), (200, 90, 6), (200, 150, 4)])
def test_planted_vectors_stay_inside_the_bracket(users, rounds, weight):
    """With a light vector planted the bracket holds its weight after every piece of work, and finds it."""
    log = ParticipationLog.from_dense(planted(users, rounds, weight, np.random.default_rng(users + weight)))
    audit = Audit.of(log, np.random.default_rng(0))
    for count, found in enumerate(audit.refine(lambda: 60.0)):
        # The planted vector is above the truth at most; and nothing lighter is likely to be there.
        assert found.low <= weight
        if count == 12:
            break
    assert audit.weak.high <= weight
    assert sum(entry != 0 for entry in rational.combined(audit.weak.witness, dense(log))) == audit.weak.high


METHODS = ("_disjoint_bases", "_projections", "_hitting")
HELP = ("_exchanges", "_offer_differences")


@pytest.mark.parametrize("alone", METHODS)
@pytest.mark.parametrize("prime", [None, 31])
def test_each_way_to_a_lower_bound_is_right_alone(alone, prime, monkeypatch):
    """Disjoint bases, projections and hitting sets never pass the truth, without vectors that others found."""
    for other in METHODS:
        if other != alone:
            monkeypatch.setattr(weak_level.WeakSearch, other, lambda *_: iter(()))
    for other in HELP:
        monkeypatch.setattr(weak_level.WeakSearch, other, lambda *_: None)
    rng, closed = np.random.default_rng(0), 0
    for _ in range(120):
        users = rng.integers(5, 11)
        rows = rng.random((rng.integers(2, users), users)) < rng.uniform(0.3, 0.7)
        if users < 8:  # classes of one user and of two
            rows = rows[:, np.repeat(np.arange(users), rng.integers(1, 3, size=users))]
        log = ParticipationLog.from_dense(rows.astype(int))
        truth = rational.weak_level(dense(log))
        primes = None if prime is None else chain([prime], random_primes(np.random.default_rng(1)))
        audit = Audit.of(log, np.random.default_rng(0), primes=primes)
        for found in audit.refine(lambda: 60.0):
            assert found.low <= truth <= found.high
        closed += audit.weak.exact
    assert closed == 120 if alone == "_hitting" else closed > 40


def test_a_vector_of_three_pivots_is_not_passed_over(monkeypatch):
    """Rounds 0XY, 1X and 2Y: 0 - 1 - 2 is lighter than any combination of two, which prove no more than 3."""
    for other in ("_projections", "_hitting"):
        monkeypatch.setattr(weak_level.WeakSearch, other, lambda *_: iter(()))
    for other in HELP:
        monkeypatch.setattr(weak_level.WeakSearch, other, lambda *_: None)
    rows = np.array([[1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]], dtype=np.uint8)
    form = Echelon(101)
    for _ in range(5):
        form.add_column()
    for row in rows:
        form.add(np.flatnonzero(row))
    form.leave(np.array([False, False, False, True, True]))
    assert sorted(form.pivots.tolist()) == [0, 1, 2]
    found = weak_level.WeakSearch(rows, form, np.array([1, 1, 1, 5, 5]), np.random.default_rng(0))
    for _ in found.steps(lambda: 60.0):
        pass
    assert found.low == 3 < found.high


def test_weights_count():
    """A class of many users weighs as many: the lightest vector need not have the fewest entries."""
    # Two rounds that differ in one large class, and three rounds whose combination leaves small ones.
    sizes = [9, 1, 1, 1, 1]
    rows = [[1, 1, 1, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 1, 1], [0, 1, 0, 1, 0]]
    users = np.repeat(np.arange(5), sizes)
    log = ParticipationLog.from_dense(np.array(rows)[:, users])
    found = bracket(log)
    assert found.exact
    assert found.high == rational.weak_level(dense(log)) == 2


def test_a_bound_that_the_solver_cannot_finish_is_still_a_bound(monkeypatch):
    """With next to no time for each call the hitting set's bound stays at or below the truth."""
    log = random_selection(24, 8, 10, np.random.default_rng(3))
    truth = bracket(log)
    assert truth.exact
    monkeypatch.setattr(weak_level, "_LONGEST", 1e-3)
    monkeypatch.setattr(weak_level.WeakSearch, "_projections", lambda *_: iter(()))
    monkeypatch.setattr(weak_level.WeakSearch, "_disjoint_bases", lambda *_: iter(()))
    found = steps(log, 40)
    assert found.low <= truth.low <= truth.high <= found.high


@pytest.mark.parametrize("seed", range(6))
def test_the_lightest_pair_is_the_lightest(seed):
    """Of all combinations of two echelon rows the lightest is found, against all ratios in a small field."""
    rng = np.random.default_rng(seed)
    form, sizes = Echelon(31), rng.integers(1, 4, size=12)
    for _ in range(12):
        form.add_column()
    for _, members in random_selection(12, 4, 7, rng).sets():
        form.add(members)
    weight, support = weak_level.lightest_pair(form, sizes, lambda: False)
    lightest = min(
        sizes[form.free][(form.dense[one] - ratio * form.dense[other]) % 31 != 0].sum()
        + sizes[form.pivots[[one, other]]].sum()
        for one in range(form.rank)
        for other in range(one)
        if form.dense[one].any() and form.dense[other].any()
        for ratio in range(1, 31)
    )
    assert weight == lightest == sizes[support].sum()
