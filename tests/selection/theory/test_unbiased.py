"""Lemma 1 (lem:unbiased_selection): the mean over the cohort is, on average, the mean over all users."""

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.selection import Family, consecutive

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(st.just(shape[0]), st.just(shape[1]), st.integers(1, shape[1]))
)


def mean(values: list[Fraction]) -> Fraction:
    """Return the exact mean."""
    return sum(values, Fraction(0)) / len(values)


def rows(privacy: int, batches: int, needed: int) -> list[list[int]]:
    """Return the users of every row of the family that selection draws from."""
    family = Family(consecutive(privacy * batches, privacy), privacy * needed)
    return [np.flatnonzero(row).tolist() for row in family.matrix()]


@given(SHAPES, st.data())
@settings(deadline=None)
def test_family_is_unbiased(shape: tuple[int, int, int], data: st.DataObject) -> None:
    """Over all rows of the family, the average cohort mean is the population mean, exactly."""
    privacy, batches, needed = shape
    users = privacy * batches
    models = data.draw(st.lists(st.fractions(-9, 9, max_denominator=9), min_size=users, max_size=users))
    family = rows(privacy, batches, needed)
    assert mean([mean([models[user] for user in row]) for row in family]) == mean(models)


@given(st.sampled_from([(2, 3, 1), (2, 3, 2), (1, 5, 2), (3, 2, 1), (2, 4, 2)]), st.integers(1, 6), st.data())
@settings(deadline=None, max_examples=20)
def test_equal_dropout_keeps_it_unbiased(shape: tuple[int, int, int], dropout: int, data: st.DataObject) -> None:
    """With equal dropout and a uniform available row, a round that runs is unbiased, exactly."""
    privacy, batches, needed = shape
    users, lost = privacy * batches, Fraction(dropout, 7)
    models = data.draw(st.lists(st.integers(-9, 9).map(Fraction), min_size=users, max_size=users))
    family = rows(privacy, batches, needed)
    runs, total = Fraction(0), Fraction(0)
    for pattern in product((False, True), repeat=users):
        available = [row for row in family if all(pattern[user] for user in row)]
        if available:
            chance = lost ** pattern.count(False) * (1 - lost) ** pattern.count(True)
            runs += chance
            total += chance * mean([mean([models[user] for user in row]) for row in available])
    assert total == runs * mean(models)


def test_unequal_dropout_is_biased() -> None:
    """The lemma needs equal dropout: with unequal one, uniform choice favours the batch that is there."""
    models, whole = [Fraction(0), Fraction(1)], [Fraction(1, 2), Fraction(1)]
    both, second = whole[0] * whole[1], (1 - whole[0]) * whole[1]
    assert both * mean(models) + second * models[1] != (both + second) * mean(models)
