"""The weak privacy level beside other results: what is proven of it cheaply, the same on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.values import ParticipationLog


def proven_weak_level(log: ParticipationLog) -> dict[str, Any]:
    """Return a bracket of a log's weak level; `coterie audit` narrows it further."""
    import numpy as np

    from coterie.audit import Audit

    weak = Audit.of(log, np.random.default_rng(0)).sketch()
    return {"low": weak.low, "high": weak.high, "exact": weak.exact}


def bracket(weak: dict[str, Any] | None) -> str:
    """Return a bracket for a person to read.

    >>> bracket({"low": 2, "high": 4, "exact": False}), bracket({"low": 4, "high": 4, "exact": True})
    ('2..4', '4')
    """
    if weak is None:
        return "–"
    return str(weak["low"]) if weak["exact"] else f"{weak['low']}..{weak['high']}"
