"""Array types, and the checks that every array-backed value makes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import UsageError

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.signedinteger[Any]]


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
    array.flags.writeable = False
    return array


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


def check_users(indices: IntArray, users: int) -> None:
    """Refuse an index that is not one of the users 0 … users - 1."""
    for extreme in (indices.min(initial=0), indices.max(initial=0)):
        if len(indices) and not 0 <= extreme < users:
            raise UsageError(f"user {extreme} is not one of the {users} users 0 … {users - 1}")
