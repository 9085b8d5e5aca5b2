"""What a participation log gives away: privacy levels, isolated users, fairness gap, cardinality."""

from coterie.audit.engine import Audit, Bracket, IsolatedUser
from coterie.audit.evidence import Evidence, Provenance
from coterie.audit.figures import Figure
from coterie.audit.forecast import Forecast, Omission, Policy, Span, forecast
from coterie.audit.measures import Measures, RoundMeasures, RunningMeasures, measure
from coterie.audit.plan_check import Breach, breaches
from coterie.audit.strong import StrongLevel, strong_level
from coterie.audit.verdict import Classes, Question, Verdict, examine
from coterie.audit.weak.elimination import IsolatedUsers
from coterie.audit.weak.proofs import Combination, FullRank
from coterie.audit.windows import WindowLevel, window_level
from coterie.audit.wording import Wording

__all__ = [
    "Audit",
    "Bracket",
    "Breach",
    "Classes",
    "Combination",
    "Evidence",
    "Figure",
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
