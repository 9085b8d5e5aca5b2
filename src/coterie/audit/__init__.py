"""What a participation log gives away: privacy levels, isolated users, fairness gap, cardinality."""

from coterie.audit.engine import Audit, Bracket, IsolatedUser
from coterie.audit.forecast import Forecast, Span, forecast
from coterie.audit.measures import Measures, RoundMeasures, RunningMeasures, measure
from coterie.audit.planned import Breach, breaches
from coterie.audit.strong import StrongLevel, strong_level
from coterie.audit.verdict import Classes, Question, Verdict, examine
from coterie.audit.weak.isolation import IsolatedUsers
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.audit.windows import WindowLevel, window_level

__all__ = [
    "Audit",
    "Bracket",
    "Breach",
    "Classes",
    "Combination",
    "Forecast",
    "FullRank",
    "IsolatedUser",
    "IsolatedUsers",
    "Measures",
    "Question",
    "RoundMeasures",
    "RunningMeasures",
    "Span",
    "StrongLevel",
    "Verdict",
    "WindowLevel",
    "breaches",
    "examine",
    "forecast",
    "measure",
    "strong_level",
    "window_level",
]
