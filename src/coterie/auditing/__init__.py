"""`audit`: what has a federation given away, from its log, its run's folder, or its ledger?

This is the call that `coterie.audit` names. What reads files is imported when there is a file to read.
"""

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.audit import Evidence, Question, Verdict, examine
from coterie.errors import UsageError
from coterie.values import BatchPlan, ParticipationLog

__all__ = ["audit"]

SECONDS = 10.0
"""For the forecast and for narrowing the weak level, unless another budget is given."""


def audit(
    log: str | os.PathLike[str] | ParticipationLog | Evidence,
    *,
    users: int | None = None,
    rounds: int | None = None,
    plan: BatchPlan | str | os.PathLike[str] | None = None,
    window: int | None = None,
    colluders: int | str | Iterable[str] = 0,
    require: int | None = None,
    budget: float = SECONDS,
    seed: int = 0,
    all_combinations: bool = False,
    round_column: str | None = None,
    user_column: str | None = None,
    delimiter: str | None = None,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Say what a federation has given away, with proofs.

    `log` is the file of a log, a run's folder, a ledger (its file or PostgreSQL URL), a log that was read, or
    evidence. `users` and `rounds` say how many there are in all, also those that a log cannot show. The log is
    held against a `plan` (a ledger brings its own). `window` asks for the worst so many rounds in a row.
    `colluders` tell the server their updates: how many, wherever they stand, or who. `require` is the strong
    level that must be proven. `budget` are seconds for the forecast and the weak level. `seed` decides what is
    drawn, and no proof. Combinations are computed for 20 isolated users, or all. `round_column`, `user_column` and
    `delimiter` say how to read a file where that is guessed wrongly. `stopped` is asked whether to end early, with
    what is proven so far; `progress` is told what is being done.

    >>> log = ParticipationLog.from_dense([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], names=list("abcdef"))
    >>> verdict = audit(log, require=3)
    >>> verdict.met, verdict.strong, verdict.words.headline
    (True, 3, 'The required level of 3 is met: users hide in groups of at least 3.')
    >>> audit(log, colluders=["a", "b"]).strong, audit(log, colluders=1).strong_left
    (1, 2)
    """
    if not 0 <= budget < math.inf:
        raise UsageError(f"the budget is {budget}; give seconds, 0 or more")
    if isinstance(log, ParticipationLog | Evidence):
        evidence, everyone = _at_hand(log, rounds)
    else:
        from coterie.auditing.evidence import read_evidence

        evidence, everyone = read_evidence(
            log, rounds=rounds, round_column=round_column, user_column=user_column, delimiter=delimiter
        )
    if users is not None and users < everyone:
        raise UsageError(
            f"the number of users is {users}, but the log has {everyone}; give the number of all users"
        )
    if plan is not None:
        evidence = _against(evidence, plan)
    names = (colluders,) if isinstance(colluders, str) else () if isinstance(colluders, int) else tuple(colluders)
    question = Question(
        users=everyone if users is None else users,
        window=window,
        colluders=colluders if isinstance(colluders, int) else 0,
        named_colluders=_numbers(names, evidence.log),
        required=require,
        combinations=None if all_combinations else Question.combinations,
    )
    return examine(
        evidence,
        question,
        rng=np.random.default_rng(seed),
        left=_countdown(budget),
        stopped=stopped,
        tell=progress,
    )


def _at_hand(log: ParticipationLog | Evidence, rounds: int | None) -> tuple[Evidence, int]:
    """Return the evidence of a log that was read already, and the number of all users."""
    from coterie.auditing.evidence import with_names

    evidence, everyone = (log, log.log.users) if isinstance(log, Evidence) else with_names(log)
    if rounds is None:
        return evidence, everyone
    if rounds < evidence.log.rounds:
        raise UsageError(
            f"the log has {evidence.log.rounds} rounds, more than the {rounds} given; give that of all"
        )
    return replace(evidence, log=replace(evidence.log, rounds=rounds)), everyone


def _against(evidence: Evidence, plan: BatchPlan | str | os.PathLike[str]) -> Evidence:
    """Return evidence that is held against another plan, user by user of the same name."""
    from coterie.auditing.evidence import plan_numbers
    from coterie.storage.plans import read_plan

    agreed = plan if isinstance(plan, BatchPlan) else read_plan(Path(plan))
    numbers = plan_numbers(evidence.log, agreed)
    return replace(evidence, plan=agreed, plan_numbers=numbers, plan_since=0, sealed=False)


def _numbers(names: Iterable[str], log: ParticipationLog) -> tuple[int, ...]:
    """Return the numbers of the colluders who are named."""
    number = {name: index for index, name in enumerate(log.names or ())}
    for name in names:
        if name not in number:
            raise UsageError(f"{name!r} is to collude but is not in the log; give names as the log writes them")
    return tuple(sorted({number[name] for name in names}))


def _countdown(seconds: float) -> Callable[[], float]:
    """Return a clock of the seconds that are left, which starts at the first look."""
    end: float | None = None

    def left() -> float:
        nonlocal end
        if end is None:
            end = time.monotonic() + seconds
        return end - time.monotonic()

    return left
