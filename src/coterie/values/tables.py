"""Frozen dataclasses from nested tables, as TOML and JSON give them: every key known, every value of its kind."""

import difflib
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from coterie.errors import UsageError

T = TypeVar("T")

_LARGEST_INTEGER = 2**53
"""A whole number up to here is a floating-point number too."""


def from_table(kind: type[T], table: Any, what: str, path: str = "") -> T:  # noqa: ANN401 - a table can hold anything
    """Return a dataclass from a table; keys that it leaves out have their defaults. `what` it is, for messages.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: float = 0.0
    ...     label: str = ""
    >>> from_table(Point, {"x": 3}, "a point")
    Point(x=3.0, label='')
    >>> from_table(Point, {"lable": "a"}, "a point")
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no lable in a point; did you mean label?
    """
    if not isinstance(table, Mapping):
        raise UsageError(f"{path.rstrip('.') or what} is {table!r}; it must be a table")
    hints = get_type_hints(kind)
    for key in table:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            hint = f"did you mean {path}{near[0]}?" if near else f"known are {', '.join(hints)}"
            raise UsageError(f"there is no {path}{key} in {what}; {hint}")
    return kind(**{key: _value(hints[key], value, what, f"{path}{key}") for key, value in table.items()})


def _value(hint: Any, value: Any, what: str, name: str) -> Any:  # noqa: ANN401
    """Return a value of the kind that a field has; refuse others."""
    if hint is Any:
        return value
    if is_dataclass(hint):
        return from_table(hint, value, what, f"{name}.")  # type: ignore[arg-type]
    if get_origin(hint) is not None:
        return _compound(hint, value, what, name)
    if hint is float and type(value) is int and abs(value) <= _LARGEST_INTEGER:
        return float(value)
    if type(value) is not hint:
        kinds = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}
        raise UsageError(f"{name} is {value!r}; give {kinds[hint]}")
    return value


def _compound(hint: Any, value: Any, what: str, name: str) -> Any:  # noqa: ANN401
    """Return a value of a choice, a list, a table, or one of a choice of words and something else."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        words = next(each for each in inside if get_origin(each) is Literal)
        other = next(each for each in inside if each is not words)
        return _value(words if isinstance(value, str) else other, value, what, name)
    if origin is Literal:
        if not any(type(value) is type(each) and value == each for each in inside):
            raise UsageError(f"{name} is {value!r}; give one of {', '.join(map(str, inside))}")
        return value
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise UsageError(f"{name} is {value!r}; give a table")
        return {str(key): _value(inside[1], part, what, f"{name}.{key}") for key, part in value.items()}
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} is {value!r}; give a list")
    kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else list(inside)
    if len(kinds) != len(value):
        raise UsageError(f"{name} has {len(value)} values; give {len(kinds)}")
    return tuple(_value(kind, part, what, name) for kind, part in zip(kinds, value, strict=True))
