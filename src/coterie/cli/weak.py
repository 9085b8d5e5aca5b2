"""The weak privacy level beside other results: what can be proven of it in a short time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.values import ParticipationLog

SECONDS = 2.0


def proven_weak_level(log: ParticipationLog) -> dict[str, Any]:
    """Return the bracket of a log's weak level, narrowed for two seconds at most."""
    import numpy as np

    from coterie.audit.level import weak_level

    end = time.monotonic() + SECONDS
    weak = weak_level(log, np.random.default_rng(0), left=lambda: end - time.monotonic())
    return {"low": weak.low, "high": weak.high, "exact": weak.exact}


def bracket(weak: dict[str, Any] | None) -> str:
    """Return a bracket for a person to read.

    >>> bracket({"low": 2, "high": 4, "exact": False}), bracket({"low": 4, "high": 4, "exact": True})
    ('2..4', '4')
    """
    if weak is None:
        return "–"
    return str(weak["low"]) if weak["exact"] else f"{weak['low']}..{weak['high']}"
