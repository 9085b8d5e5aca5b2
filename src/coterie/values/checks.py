"""The rules that N, K, T and probabilities must keep, checked in one place."""

from operator import index

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.values.arrays import FloatArray

LARGEST_POPULATION = 2**31 - 1
"""Users are numbered in 32 bits."""


def check_count(value: int, what: str, least: int = 1) -> int:
    """Return `value` as an integer of at least `least`.

    >>> check_count(0, "the number of rounds")
    Traceback (most recent call last):
    coterie.errors.UsageError: the number of rounds is 0; give an integer of at least 1
    """
    try:
        count = index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or count < least:
        raise UsageError(f"{what} is {value!r}; give an integer of at least {least}")
    return count


def check_parameters(users: int, per_round: int, privacy: int = 1) -> None:
    """Refuse N, K, T unless 1 ≤ T ≤ K ≤ N.

    >>> check_parameters(120, 12, 6)
    >>> check_parameters(120, 12, 13)
    Traceback (most recent call last):
    coterie.errors.UsageError: privacy T = 13 is above K = 12 users per round; a round must hold a whole batch: lower T or raise K
    """  # noqa: E501 - the message is one line
    check_count(users, "the number of users N")
    if users > LARGEST_POPULATION:
        raise UsageError(f"N = {users} users is more than {LARGEST_POPULATION}; plan for a part of them")
    check_count(per_round, "the number of users per round K")
    check_count(privacy, "the privacy level T")
    if per_round > users:
        raise UsageError(f"K = {per_round} users per round is above N = {users} users; lower K or find more users")
    if privacy > per_round:
        raise UsageError(
            f"privacy T = {privacy} is above K = {per_round} users per round; "
            "a round must hold a whole batch: lower T or raise K"
        )


def check_divides(users: int, per_round: int, privacy: int) -> tuple[int, int]:
    """Return (N/T, K/T), the numbers of batches in all and in a round; refuse T that does not divide both.

    >>> check_divides(120, 12, 6)
    (20, 2)
    >>> check_divides(120, 12, 5)
    Traceback (most recent call last):
    coterie.errors.UsageError: privacy T = 5 does not divide K = 12; this formula needs T to divide N and K
    """
    check_parameters(users, per_round, privacy)
    for name, value in (("N", users), ("K", per_round)):
        if value % privacy:
            raise UsageError(
                f"privacy T = {privacy} does not divide {name} = {value}; this formula needs T to divide N and K"
            )
    return users // privacy, per_round // privacy


def check_probability(value: float, what: str) -> float:
    """Return `value` as a float between 0 and 1.

    >>> check_probability(-0.1, "the dropout")
    Traceback (most recent call last):
    coterie.errors.UsageError: the dropout is -0.1; give a probability between 0 and 1
    """
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"{what} is {value}; give a probability between 0 and 1")
    return float(value)


def check_probabilities(values: ArrayLike, what: str) -> FloatArray:
    """Return `values` as a one-dimensional array of probabilities.

    >>> check_probabilities([0.5, float("nan")], "the dropout")
    Traceback (most recent call last):
    coterie.errors.UsageError: the dropout number 1 is nan; give probabilities between 0 and 1
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise UsageError(f"{what} must be a list of probabilities, not of shape {array.shape}")
    bad = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)))
    if len(bad):
        raise UsageError(f"{what} number {bad[0]} is {array[bad[0]]}; give probabilities between 0 and 1")
    return array
