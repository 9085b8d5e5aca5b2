"""Array types, and the rules that arrays, N, K, T and probabilities must keep, checked in one place."""

from collections.abc import Sequence
from operator import index
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.signedinteger[Any]]

_Array = TypeVar("_Array", bound=NDArray[Any])


def frozen(array: _Array) -> _Array:
    """Return the array itself, read-only from now on."""
    array.flags.writeable = False
    return array


def frozen_integers(values: ArrayLike, dtype: type[np.signedinteger[Any]], what: str) -> IntArray:
    """Return `values` as a one-dimensional read-only array of `dtype`; refuse what does not fit.

    An array that is already of this kind and read-only is shared, not copied.

    >>> frozen_integers([3, 1], np.int32, "members")
    array([3, 1], dtype=int32)
    >>> frozen_integers([0.5], np.int32, "members")
    Traceback (most recent call last):
    coterie.errors.UsageError: members must be integers, not float64
    """
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{what} must be integers, not {array.dtype}")
    if array.ndim != 1:
        raise UsageError(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.dtype != dtype:
        limits = np.iinfo(dtype)
        if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
            raise UsageError(f"{what} must lie between {limits.min} and {limits.max}")
        array = array.astype(dtype)
    elif array.flags.writeable:
        array = array.copy()
    return frozen(array)


def checked_names(names: Sequence[str] | None, users: int) -> tuple[str, ...] | None:
    """Return the users' names as a tuple, one distinct name for each of the `users`."""
    if names is None:
        return None
    names = tuple(names)
    if len(names) != users:
        raise UsageError(f"{len(names)} names were given for {users} users; give one name per user")
    if len(set(names)) != users:
        raise UsageError("two users have the same name; names must be distinct")
    return names


def starts_of(sizes: ArrayLike) -> IntArray:
    """Return where each of several pieces of these sizes starts, laid end to end, and where the last one ends.

    >>> starts_of([2, 3]).tolist()
    [0, 2, 5]
    """
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def places_of(starts: IntArray, sizes: IntArray) -> IntArray:
    """Return the places of pieces that start there and have these sizes, piece after piece.

    >>> places_of(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    places: IntArray = np.arange(int(sizes.sum())) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return places


def check_users(indices: IntArray, users: int) -> None:
    """Refuse an index that is not one of the users 0 … users - 1."""
    for extreme in (indices.min(initial=0), indices.max(initial=0)):
        if len(indices) and not 0 <= extreme < users:
            raise UsageError(f"user {extreme} is not one of the {users} users 0 … {users - 1}")


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


def learned_set(members: ArrayLike, users: int) -> IntArray:
    """Return the users of a learned set, sorted; refuse an empty set, a stranger, and a user given twice."""
    checked = frozen_integers(members, np.int32, "users of a learned set")
    if len(checked) == 0:
        raise UsageError("a learned set has no users; a round without a result simply has no set")
    if not np.all(checked[1:] > checked[:-1]):
        checked = np.sort(checked)
        if np.any(checked[1:] == checked[:-1]):
            raise UsageError("a user stands twice in a learned set")
    check_users(checked[[0, -1]], users)
    return checked
