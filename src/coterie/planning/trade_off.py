"""`plan`: what each privacy level costs a federation, and which one to take."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import UsageError
from coterie.planning.options import (
    CONDITION,
    RULE,
    Option,
    PlanMaker,
    feasible_levels,
    homogeneity_warning,
    options,
    plan_makers,
    recommend,
)
from coterie.planning.population import KnownDropout, Population, RecordedAvailability, halves
from coterie.selection import draw_dropout
from coterie.values import AvailabilityLog, BatchPlan
from coterie.values.checks import check_parameters
from coterie.values.text import counted

MOST_USERS = 2_000_000
"""Beyond this many, plans take minutes and gigabytes, and hardly differ."""
LARGEST_JSON_INTEGER = 2**1024
"""Larger family sizes have hundreds of digits; the record then gives only their logarithm."""


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Every option that a federation has, and the recommended one; in a notebook it shows itself as a table.

    `recommended` is None where no plan with T of 2 or more completes a round. `rule_met` says whether it keeps
    `RULE`, or only needs the fewest rounds.
    """

    users: int
    per_round: int
    availability: str
    random_cardinality: float
    """C of random selection, with which the options are compared."""
    options: tuple[Option, ...]
    recommended: Option | None
    rule_met: bool
    warnings: tuple[str, ...] = ()
    seed: int = 0
    makers: dict[str, PlanMaker] = field(default_factory=dict, repr=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of plan among the options."""
        return tuple(self.makers)

    @property
    def plan(self) -> BatchPlan:
        """The recommended plan."""
        if self.recommended is None:
            raise UsageError(self.verdict)
        return self.makers[self.recommended.kind](self.recommended.privacy)

    @property
    def verdict(self) -> str:
        """What is recommended, in a sentence."""
        if self.recommended is None:
            return (
                "No plan with T of 2 or more completes a round: raise the users per round, or find users who are "
                "there more often."
            )
        chosen = f"T = {self.recommended.privacy}, plan {self.recommended.kind}"
        if self.rule_met:
            return f"Recommended: {chosen}."
        return f"No plan to choose from has a T of 2 or more that {CONDITION}. Fewest rounds: {chosen}."

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The options as columns: an array for each measure, ready for a data frame."""
        names = ("privacy", "plan", "batches", "cardinality", "skipped", "fairness_gap")
        rows = [_option_record(option) for option in self.options]
        columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in names}
        columns["rounds_factor"] = np.array(
            [option.rounds_factor for option in self.options]
        )  # also infinite ones
        return columns

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, as it stands in JSON."""
        return {
            "users": self.users,
            "availability": self.availability,
            "per_round": self.per_round,
            "random_cardinality": self.random_cardinality,
            "options": [_option_record(option) for option in self.options],
            "recommended": None if self.recommended is None else _option_record(self.recommended),
            "rule": RULE,
            "rule_met": self.rule_met,
            "warnings": list(self.warnings),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        options = counted(len(self.options), "option")
        return f"TradeOff({counted(self.users, 'user')}, {options}; {self.verdict})"

    def _repr_html_(self) -> str:
        bold = ' style="font-weight:bold"'
        heads = ("T", "plan", "batches", "C", "skipped", "F", "rounds")
        rows = "".join(
            f"<tr{bold if option is self.recommended else ''}>"
            f"<td>{option.privacy}<td>{escape(option.kind)}<td>{option.batches}<td>{option.trade.cardinality:.2f}"
            f"<td>{option.trade.skipped:.0%}<td>{option.trade.fairness_gap:.3f}<td>{option.rounds_factor:.2f}</tr>"
            for option in self.options
        )
        head = "".join(f"<th>{name}" for name in heads)
        return f"<table><tr>{head}</tr>{rows}</table><p>{escape(self.verdict)}</p>"


def plan(
    *,
    per_round: int,
    users: int | None = None,
    dropout: float | Sequence[float] | None = None,
    availability: AvailabilityLog | str | os.PathLike[str] | None = None,
    privacy: int | None = None,
    churn: float | None = None,
    mixing: float = 0.0,
    deal: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TradeOff:
    """Show what each privacy level costs, and recommend one.

    Users are away with the probability `dropout` (one for all, or several from which each user's is drawn with
    `seed`), or as a record of `availability` says (a log, or its file). `privacy` looks at one T only. `churn` is
    the share of users who leave for good within a year. `mixing` adds plans by availability with that share of
    users placed at random. `deal` deals users out to batches like cards, in place of consecutive ones, and
    recommends such a plan only: for users who are numbered in the order of their data. `progress` is told how
    many of how many options are done.

    >>> trade_off = plan(users=120, per_round=12, dropout=0.1)
    >>> trade_off.verdict
    'Recommended: T = 12, plan consecutive.'
    >>> trade_off.plan
    BatchPlan(120 users, 10 batches of 12, privacy 12)
    >>> trade_off.columns["cardinality"][:3].round(2).tolist()
    [12.0, 12.0, 12.0]
    """
    population, description = _population(users, dropout, availability, seed)
    if mixing and np.ptp(population.dropout) == 0 and isinstance(population, KnownDropout):
        raise UsageError(
            f"mixing is {mixing}, but all users are away equally often, so it changes nothing; leave it out"
        )
    earlier, later = halves(population)
    levels = feasible_levels(population.users, per_round, privacy)
    makers = plan_makers(earlier, mixing, seed, deal=deal)
    candidates: list[Option] = []
    for option in options(levels, per_round, makers, later, churn):
        candidates.append(option)
        progress(len(candidates), len(levels) * len(makers))
    # Whoever asks to deal has a reason in the data against batches of like users; the others are for comparison.
    wanted = [option for option in candidates if not deal or option.kind == "dealt"]
    choice, rule_met = recommend(wanted, population.users, per_round)
    warning = None if choice is None else homogeneity_warning(choice, mixing)
    return TradeOff(
        users=population.users,
        per_round=per_round,
        availability=description,
        random_cardinality=later.random_cardinality(per_round),
        options=tuple(candidates),
        recommended=choice,
        rule_met=rule_met,
        warnings=() if warning is None else (warning,),
        seed=seed,
        makers=plan_makers(population, mixing, seed, deal=deal),
    )


def _population(
    users: int | None,
    dropout: float | Sequence[float] | None,
    availability: AvailabilityLog | str | os.PathLike[str] | None,
    seed: int,
) -> tuple[Population, str]:
    """Return what is known of the users, and a description of it."""
    if availability is not None and dropout is None:
        from coterie.leakage.readers import read_availability

        log = availability if isinstance(availability, AvailabilityLog) else read_availability(availability, users)
        if users not in {None, log.users}:
            raise UsageError(f"the record is of {log.users} users, not of {users}; leave users out")
        _check_users(log.users)
        description = "a record" if isinstance(availability, AvailabilityLog) else str(Path(availability))
        return RecordedAvailability(log, seed), f"availability as in {description}"
    if dropout is None or availability is not None:
        raise UsageError("say how often users are away, in one way: by dropout, or by a record of availability")
    if users is None:
        raise UsageError("say how many users there are")
    check_parameters(users, 1)
    _check_users(users)
    population = KnownDropout(draw_dropout(dropout, users, np.random.default_rng(seed)), seed)
    choices = [f"{choice:g}" for choice in np.atleast_1d(dropout)]
    return population, f"dropout {','.join(choices)}{f', drawn with seed {seed}' if len(choices) > 1 else ''}"


def _check_users(users: int) -> None:
    if users > MOST_USERS:
        raise UsageError(
            f"{users} users are more than the {MOST_USERS} that are planned for at once; plan for a part of them: "
            "with more users fewer rounds are skipped, and T, K and the kind of plan stay what they are"
        )


def _option_record(option: Option) -> dict[str, Any]:
    """Return an option as it stands in the JSON record."""
    trade = option.trade
    record: dict[str, Any] = {
        "privacy": option.privacy,
        "plan": option.kind,
        "batches": option.batches,
        "batch_sizes": option.batch_sizes,
        "cohort_sizes": option.cohort_sizes,
        "family_size": option.family_size if option.family_size < LARGEST_JSON_INTEGER else None,
        "family_size_log10": math.log10(option.family_size),
        "cardinality": trade.cardinality,
        "skipped": trade.skipped,
        "fairness_gap": trade.fairness_gap,
        "rounds_factor": option.rounds_factor if math.isfinite(option.rounds_factor) else None,
        "exact": trade.exact,
    }
    if option.churn is not None:
        record["churn"] = asdict(option.churn)
    return record
