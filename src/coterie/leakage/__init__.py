"""What a participation log gives away: privacy levels, isolated users, fairness gap, cardinality.

Only `readers`, which reads and writes logs as files, does I/O, so it is imported by its own name.

In: a participation log, and what else is known of its rounds.
Out: a `Verdict`: levels, isolated users with proofs, a forecast, in numbers and in words.
"""

from coterie.leakage.elimination import IsolatedUsers
from coterie.leakage.evidence import Breach, Evidence, Provenance, breaches
from coterie.leakage.forecast import Forecast, Omission, Policy, Span, forecast
from coterie.leakage.isolation import Audit, Bracket, IsolatedUser
from coterie.leakage.measures import (
    Measures,
    RoundMeasures,
    RunningMeasures,
    StrongLevel,
    WindowLevel,
    measure,
    strong_level,
    window_level,
)
from coterie.leakage.proofs import Combination, FullRank
from coterie.leakage.verdict import Classes, Question, Verdict, examine
from coterie.leakage.wording import Wording

__all__ = [
    "Audit",
    "Bracket",
    "Breach",
    "Classes",
    "Combination",
    "Evidence",
    "Forecast",
    "FullRank",
    "IsolatedUser",
    "IsolatedUsers",
    "Measures",
    "Omission",
    "Policy",
    "Provenance",
    "Question",
    "RoundMeasures",
    "RunningMeasures",
    "Span",
    "StrongLevel",
    "Verdict",
    "WindowLevel",
    "Wording",
    "breaches",
    "examine",
    "forecast",
    "measure",
    "strong_level",
    "window_level",
]
