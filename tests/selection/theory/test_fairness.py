"""Participation rates, against simulation of the policy and against brute force over all sets of batches."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.selection import theory
from coterie.selection.theory import at_least, cardinality, fairness_gap, participation_rates
from coterie.values import FloatArray

CHANCES = st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5, 0.51, 0.8, 0.95, 1.0]), min_size=1, max_size=7)


def brute_rates(whole: list[float], needed: int) -> FloatArray:
    """Return the max-min fair base: again and again the set whose cap per further batch is the lowest."""
    batches = len(whole)
    caps = np.zeros(1 << batches)
    sizes = np.array([chosen.bit_count() for chosen in range(1 << batches)])
    for pattern in product((0, 1), repeat=batches):
        if sum(pattern) >= needed:
            chance = np.prod([a if up else 1.0 - a for a, up in zip(whole, pattern, strict=True)])
            up = sum(bit << b for b, bit in enumerate(pattern))
            caps += chance * np.minimum(needed, sizes[np.arange(1 << batches) & up])
    rates = np.zeros(batches)
    settled = 0
    while settled != (1 << batches) - 1:
        larger = [s for s in range(1 << batches) if s & settled == settled and s != settled]
        slopes = {s: (caps[s] - caps[settled]) / (sizes[s] - sizes[settled]) for s in larger}
        lowest = min(slopes.values())
        best = max((s for s in larger if slopes[s] <= lowest + 1e-12), key=lambda s: sizes[s])
        for b in range(batches):
            if (best & ~settled) >> b & 1:
                rates[b] = slopes[best]
        settled = best
    return rates


def simulated_rates(whole: FloatArray, needed: int, rounds: int, rng: np.random.Generator) -> FloatArray:
    """Play the policy: each round serves the least-served whole batches, ties at random."""
    served = np.zeros(len(whole))
    for up in rng.random((rounds, len(whole))) < whole:
        available = np.flatnonzero(up)
        if len(available) >= needed:
            rng.shuffle(available)
            served[available[np.argsort(served[available], kind="stable")[:needed]]] += 1
    return served / rounds


@given(CHANCES, st.data())
@settings(deadline=None, max_examples=60)
def test_rates_are_the_fair_base_over_all_sets(whole: list[float], data: st.DataObject) -> None:
    """The hull over prefixes gives what brute force over all sets of batches gives."""
    needed = data.draw(st.integers(1, len(whole)))
    np.testing.assert_allclose(participation_rates(whole, needed), brute_rates(whole, needed), atol=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_policy_reaches_the_rates(seed: int) -> None:
    """Serving the least-served for 12 000 rounds gives these rates, to four standard errors and 40 rounds."""
    rng = np.random.default_rng(seed)
    batches = int(rng.integers(2, 12))
    needed = int(rng.integers(1, max(2, batches // 2)))
    whole = rng.random(batches) ** (1 if seed % 2 else 2)
    rates = participation_rates(whole, needed)
    measured = simulated_rates(whole, needed, 12_000, rng)
    assert np.all(np.abs(measured - rates) < 4.0 * np.sqrt(0.25 / 12_000) + 40 / 12_000)


@given(st.integers(1, 200), st.floats(0.0, 1.0), st.data())
@settings(deadline=None, max_examples=50)
def test_equal_batches_have_gap_zero(batches: int, chance: float, data: st.DataObject) -> None:
    """Equal probabilities give F = 0 exactly, and the rates of Theorem 1."""
    needed = data.draw(st.integers(1, batches))
    whole = np.full(batches, chance)
    assert fairness_gap(whole, needed) == 0.0
    share = needed / batches * at_least(whole, needed)
    np.testing.assert_allclose(participation_rates(whole, needed), share, rtol=1e-13, atol=1e-300)


def test_rate_times_users_is_the_cardinality() -> None:
    """With equal dropout, the users' rates add up to C."""
    rates = participation_rates(np.full(40, 0.7**3), 4)
    assert 3 * rates.sum() == pytest.approx(cardinality(120, 12, 3, 0.3), rel=1e-13)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.data())
@settings(deadline=None, max_examples=80)
def test_rates_add_up_and_never_pass_availability(whole: list[float], data: st.DataObject) -> None:
    """Rates add up to needed · P(round runs), stay below availability, and rise with it."""
    needed = data.draw(st.integers(1, len(whole)))
    rates = participation_rates(whole, needed)
    assert rates.sum() == pytest.approx(needed * at_least(whole, needed), rel=1e-11, abs=1e-290)
    assert np.all(rates <= np.array(whole) + 1e-11)
    assert np.all(np.diff(rates[np.argsort(whole, kind="stable")]) >= -1e-11)


def test_order_of_batches_means_nothing() -> None:
    """Permuting the batches permutes the rates."""
    rng = np.random.default_rng(4)
    whole, order = rng.random(30), rng.permutation(30)
    assert np.array_equal(participation_rates(whole[order], 5), participation_rates(whole, 5)[order])


def test_rounds_that_need_every_batch_are_fair() -> None:
    """If all batches must be whole, all take part equally, to the last digit."""
    assert fairness_gap(np.random.default_rng(1).random(12), 12) == 0.0


def test_many_batches_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grid of groups gives nearly the exact rates, the exact total and the exact least rate."""
    whole = np.random.default_rng(3).random(2000)
    exact = participation_rates(whole, 200)
    monkeypatch.setattr(theory, "_EXACT", 1000)
    grouped = participation_rates(whole, 200)
    assert len(np.unique(grouped)) <= 270
    assert np.max(np.abs(grouped - exact)) < 0.005
    assert grouped.min() == pytest.approx(exact.min(), rel=1e-11)
    assert grouped.sum() == pytest.approx(exact.sum(), rel=1e-11)
