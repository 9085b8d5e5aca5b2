"""Rows of an outcome as text: our number with its spread, the paper's, and the difference."""

from coterie.reproduction.outcome import ACCURACY, Row

COLUMNS = ("", "measure", "ours", "runs", "paper", "difference")
_DIGITS = {ACCURACY: 2, "strong": 1, "cardinality": 2, "family size": 0}
"""Digits behind the point; three for every other measure."""
_LARGEST_WRITTEN_OUT = 1e9


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's cells, in the order of `COLUMNS`."""
    return (
        row.label,
        row.measure,
        ours(row),
        str(row.runs),
        "–" if row.paper is None else value_text(row.paper, row.measure),
        "–" if row.difference is None else value_text(row.difference, row.measure, signed=True),
    )


def ours(row: Row) -> str:
    """Return our number, with its spread where there is one."""
    value = value_text(row.ours, row.measure)
    return f"{value} ± {value_text(row.spread, row.measure)}" if row.spread else value


def value_text(value: float, measure: str, *, signed: bool = False) -> str:
    """Return a value with the digits that suit what it measures.

    >>> value_text(63.984, "test accuracy, %"), value_text(0.4, "cardinality", signed=True)
    ('63.98', '+0.40')
    """
    sign = "+" if signed else ""
    if abs(value) > _LARGEST_WRITTEN_OUT:
        return f"{value:{sign}.3g}"
    digits = _DIGITS.get(measure, 3)
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # the sum turns -0.0 into 0.0


def verdict(held: bool | None) -> str:  # noqa: FBT001 - the verdict is what the function is about
    """Return whether a claim held, in words."""
    return {True: "held", False: "not held", None: "not judged"}[held]
