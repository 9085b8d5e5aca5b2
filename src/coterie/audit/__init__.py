"""What a participation log gives away: privacy levels, isolated users, fairness gap, cardinality.

In: a participation log, and what else is known of its rounds.
Out: a `Verdict`: levels, isolated users with proofs, a forecast, in numbers and in words.
"""

from coterie.audit.engine import Audit, Bracket, IsolatedUser
from coterie.audit.evidence import Breach, Evidence, Provenance, breaches
from coterie.audit.forecast import Forecast, Omission, Policy, Span, forecast
from coterie.audit.measures import (
    Measures,
    RoundMeasures,
    RunningMeasures,
    StrongLevel,
    WindowLevel,
    measure,
    strong_level,
    window_level,
)
from coterie.audit.verdict import Classes, Question, Verdict, examine
from coterie.audit.weak.elimination import IsolatedUsers
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.audit.wording import Wording

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
