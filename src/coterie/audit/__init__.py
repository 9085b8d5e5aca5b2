"""What a participation log gives away: the privacy level, and the paper's other two measures."""

from coterie.audit.isolation import IsolatedUsers
from coterie.audit.measures import Measures, RoundMeasures, RunningMeasures, measure
from coterie.audit.strong import StrongLevel, strong_level

__all__ = [
    "IsolatedUsers",
    "Measures",
    "RoundMeasures",
    "RunningMeasures",
    "StrongLevel",
    "measure",
    "strong_level",
]
