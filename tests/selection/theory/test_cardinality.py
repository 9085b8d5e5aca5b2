"""Cardinality and the Poisson-binomial distribution, against exact fractions and ball arithmetic."""

from fractions import Fraction
from itertools import product
from math import comb, prod

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import UsageError
from coterie.selection.theory import (
    add,
    at_least,
    binomial,
    binomial_at_least,
    cardinality,
    cardinality_of_batches,
    poisson_binomial,
)

CHANCES = st.integers(0, 32).map(lambda n: Fraction(n, 32))


def exact_distribution(chances: list[Fraction], limit: int) -> list[Fraction]:
    """Return what `poisson_binomial` should, one event after the other, in fractions."""
    table = [Fraction(1)] + [Fraction(0)] * len(chances)
    for chance in chances:
        table = [table[x] * (1 - chance) + (table[x - 1] * chance if x else 0) for x in range(len(table))]
    table += [Fraction(0)] * limit
    return [*table[:limit], sum(table[limit:], Fraction(0))]


def as_printed(users: int, per_round: int, privacy: int, dropout: Fraction) -> Fraction:
    """Return the formula of Theorem 1, term by term."""
    batches, needed = users // privacy, per_round // privacy
    q = 1 - (1 - dropout) ** privacy
    lost = sum(
        comb(batches, i) * q**i * (1 - q) ** (batches - i) for i in range(batches - needed + 1, batches + 1)
    )
    return per_round * (1 - lost)


@given(st.lists(CHANCES, max_size=80), st.integers(0, 90))
@settings(deadline=None, max_examples=60)
def test_distribution_equals_exact_fractions(chances: list[Fraction], limit: int) -> None:
    """Every entry is right to 13 digits, however small it is; certain and impossible events included."""
    result = poisson_binomial([float(chance) for chance in chances], limit)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, [float(x) for x in exact_distribution(chances, limit)], rtol=1e-13)


@given(st.lists(CHANCES, max_size=8), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_at_least_equals_enumeration(chances: list[Fraction], needed: int) -> None:
    """P(at least k) is the sum over all outcomes with k events or more."""
    total = sum(
        (
            prod(
                (a if happened else 1 - a for a, happened in zip(chances, outcome, strict=True)),
                start=Fraction(1),
            )
            for outcome in product((0, 1), repeat=len(chances))
            if sum(outcome) >= needed
        ),
        Fraction(0),
    )
    assert at_least([float(a) for a in chances], needed) == pytest.approx(float(total), rel=1e-13)


@pytest.mark.parametrize("limit", [1, 7, 100, 400])
def test_grouping_does_not_change_the_distribution(limit: int) -> None:
    """Few values (binomials) and distinct ones (pairs of pairs) agree with adding event by event."""
    rng = np.random.default_rng(5)
    few, distinct = rng.choice([0.1, 0.5, 0.9], 300), rng.random(333)
    for chances in (few, distinct, np.concatenate((few, distinct))):
        slow = np.zeros(limit + 1)
        slow[0] = 1.0
        for chance in chances:
            moved = slow[:-1] * chance
            slow[:-1] *= 1.0 - chance
            slow[1:] += moved
        np.testing.assert_allclose(poisson_binomial(chances, limit), slow, rtol=1e-11, atol=1e-290)


def test_million_probabilities_add_up() -> None:
    """A million probabilities of few kinds give a distribution whose mean is right."""
    chances = np.random.default_rng(1).choice([1e-4, 2e-4, 3e-4], 1_000_000)
    distribution = poisson_binomial(chances, 400)
    assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert distribution @ np.arange(401) == pytest.approx(chances.sum(), rel=1e-10)


def test_addition_keeps_the_tail() -> None:
    """Adding distributions cut at the same limit is associative, and the total stays 1."""
    rng = np.random.default_rng(2)
    a, b, c = rng.dirichlet(np.ones(9), 3)
    np.testing.assert_allclose(add(add(a, b), c), add(a, add(b, c)), rtol=1e-13)
    assert add(a, b).sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize(
    ("users", "per_round", "privacy"),
    [(120, 12, 1), (120, 12, 3), (120, 12, 6), (120, 12, 12), (8, 8, 2), (5, 1, 1)],
)
@pytest.mark.parametrize("dropout", [Fraction(0), Fraction(1, 8), Fraction(1, 2), Fraction(7, 8), Fraction(1)])
def test_cardinality_is_theorem_one(users: int, per_round: int, privacy: int, dropout: Fraction) -> None:
    """C equals the printed sum in exact fractions, with small and with certain dropout."""
    exact = float(as_printed(users, per_round, privacy, dropout))
    assert cardinality(users, per_round, privacy, float(dropout)) == pytest.approx(exact, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(
    ("privacy", "dropout"), [(1, 0.999), (10, 0.5), (10, 0.501), (10, 0.4), (10, 0.7), (100, 0.0885)]
)
def test_cardinality_of_ten_million_users(privacy: int, dropout: float) -> None:
    """For N = 10^7 C agrees with the incomplete beta function in 200-bit ball arithmetic."""
    with ctx.workprec(200):
        whole = (1 - arb(dropout)) ** privacy
        batches, needed = 10_000_000 // privacy, 10_000 // privacy
        exact = float((10_000 * whole.beta_lower(arb(needed), arb(batches - needed + 1), 1)).mid())
    # rel: one unit in the last place of p moves (1-p)^T, and with it C, by a little.
    assert cardinality(10_000_000, 10_000, privacy, dropout) == pytest.approx(exact, rel=1e-10)


def test_equal_batches_give_the_closed_form() -> None:
    """The Poisson-binomial form with equal batches is Theorem 1."""
    whole = np.full(40, 0.7**3)
    assert cardinality_of_batches(whole, 4, 12) == pytest.approx(cardinality(120, 12, 3, 0.3), rel=1e-13)


def test_cohort_is_not_negative() -> None:
    """A cohort of less than nobody is refused."""
    with pytest.raises(UsageError, match="-1"):
        cardinality_of_batches([0.5], 1, -1)


@pytest.mark.parametrize(("trials", "chance"), [(1, 0.3), (15, 0.5), (16, 0.5), (40, 0.01), (300, 0.984375)])
def test_binomial_equals_exact_fractions(trials: int, chance: float) -> None:
    """Binomial probabilities are right to 13 digits, and their tails to 12."""
    a = Fraction(chance)
    exact = [comb(trials, x) * a**x * (1 - a) ** (trials - x) for x in range(trials + 1)]
    exact = [x if x > Fraction(10) ** -300 else Fraction(0) for x in exact]
    np.testing.assert_allclose(
        binomial(trials, chance, np.arange(trials + 1)), [float(x) for x in exact], rtol=2e-13
    )
    for needed in range(trials + 2):
        tail = float(sum(exact[needed:], Fraction(0)))
        assert binomial_at_least(trials, chance, needed) == pytest.approx(tail, rel=1e-12, abs=1e-299)


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_binomial_of_certain_events(chance: float) -> None:
    """With chance 0 or 1 the number is certain, also among no events at all."""
    for trials in (0, 20):
        expected = np.arange(trials + 1) == round(trials * chance)
        assert np.array_equal(binomial(trials, chance, np.arange(trials + 1)), expected)
