"""Coterie: federated learning that stays private over many rounds.

The names that most users need. What takes long to import comes when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError, PeerError, TooFewUsersError, UsageError
from coterie.values import AvailabilityLog, BatchPlan, Cohort, LogBuilder, ParticipationLog

if TYPE_CHECKING:
    from coterie.federation.audit import audit
    from coterie.federation.coordinator import Coordinator
    from coterie.federation.ledger import Ledger
    from coterie.lab.attacks.attack import attack
    from coterie.leakage.readers import read_availability, read_log, write_log
    from coterie.pages.run import run
    from coterie.selection import BatchSelector, BernoulliSelector, RandomSelector, WeightedRandomSelector
    from coterie.selection.plan_file import read_plan, write_plan
    from coterie.selection.simulation import simulate
    from coterie.selection.trade_off import plan

__version__ = "0.2.0"

__all__ = [
    "AvailabilityLog",
    "BatchPlan",
    "BatchSelector",
    "BernoulliSelector",
    "Cohort",
    "Coordinator",
    "CoterieError",
    "Ledger",
    "LogBuilder",
    "ParticipationLog",
    "PeerError",
    "RandomSelector",
    "TooFewUsersError",
    "UsageError",
    "WeightedRandomSelector",
    "__version__",
    "attack",
    "audit",
    "plan",
    "read_availability",
    "read_log",
    "read_plan",
    "run",
    "simulate",
    "write_log",
    "write_plan",
]

_HOMES = {
    "BatchSelector": "coterie.selection",
    "BernoulliSelector": "coterie.selection",
    "Coordinator": "coterie.federation.coordinator",
    "Ledger": "coterie.federation.ledger",
    "RandomSelector": "coterie.selection",
    "WeightedRandomSelector": "coterie.selection",
    "attack": "coterie.lab.attacks.attack",
    "audit": "coterie.federation.audit",
    "plan": "coterie.selection.trade_off",
    "read_availability": "coterie.leakage.readers",
    "read_log": "coterie.leakage.readers",
    "read_plan": "coterie.selection.plan_file",
    "run": "coterie.pages.run",
    "simulate": "coterie.selection.simulation",
    "write_log": "coterie.leakage.readers",
    "write_plan": "coterie.selection.plan_file",
}
"""Where the names live that are imported when they are first asked for."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the names are typed above
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(
            f"coterie.{name} needs PyTorch, which is not installed: pip install 'coterie[torch,report]'"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
