"""Runs for tests: records and logs that selection and the measures give, with made-up learning curves."""

from pathlib import Path

import numpy as np

from coterie.federation.ledger import PLAIN
from coterie.lab.experiments.folder import RoundRow, RunRecord
from coterie.lab.experiments.result import BatchHealth, RunResult
from coterie.leakage import Evidence, RunningMeasures
from coterie.selection import BatchSelector, RandomSelector, shuffled
from coterie.values import BatchPlan, LogBuilder


def head(aggregation, privacy, users, sealed, seed):
    """The head of a record, as `coterie run` writes it."""
    return {
        "format": 2,
        "spec": {
            "seed": seed,
            "data": {"source": "mnist-small", "users": users},
            "training": {"learning_rate": 0.05, "minibatch": 32, "schedule": [[40, 0.5]]},
            "aggregation": {"protocol": aggregation, "sealed": sealed},
        },
        "seed": seed,
        "versions": {"coterie": "0.1.0", "python": "3.11.2", "numpy": "2.4.6"},
        "started": "2025-03-01T09:00:00+00:00",
        "users": users,
        "parameters": 1_663_370,
        "privacy": privacy,
        "aggregation": aggregation,
    }


def simulated(
    *, users=120, per_round=12, privacy=6, rounds=60, aggregation="secagg+", sealed=True, away=0.15, lost=0.01,
    names=None, unfinished=(), evaluate=1, seed=11, notes=(),
):  # fmt: skip
    """A run of batches of `privacy` users, or of users chosen one by one where it is None.

    Rounds in `unfinished` are in the evidence, as the worst case, and not in the record.
    """
    rng = np.random.default_rng(seed)
    plan = None if privacy is None else shuffled(users, privacy, rng)
    if plan is not None and names is not None:
        plan = BatchPlan(users, privacy, plan.members, plan.starts, tuple(names))
    selector = RandomSelector(per_round) if plan is None else BatchSelector(plan, per_round)
    dropout = rng.uniform(0, 2 * away, users)
    builder, measures = LogBuilder(users, names), RunningMeasures(users)
    asked, completed, lost_rounds = np.zeros((3, 0 if plan is None else len(plan)), dtype=np.int64)
    rows = []
    trained, unknown = 0, {}
    for round_ in range(rounds):
        available = rng.random(users) >= dropout
        cohort = selector.choose(available, measures.participation, rng)
        stays = rng.random(users) >= lost
        learned, included, lost_batches, outcome = [], 0, 0, "skipped"
        if cohort is not None:
            learned, complete = _learned(cohort, plan, stays, aggregation, sealed)
            outcome = "committed" if learned else "abandoned"
            included, lost_batches = sum(map(len, learned)), len(cohort.batches) - len(complete)
            asked[cohort.batches] += 1
            completed[complete] += 1
            lost_rounds[np.setdiff1d(cohort.batches, complete)] += 1
        if round_ in unfinished and not sealed and cohort is not None:
            learned, unknown[round_] = [], cohort.users
        builder.append(*learned)
        measures.add_round(learned)
        trained += included
        if round_ in unfinished:
            continue
        now, seen = measures.now, trained / users
        measured = (round_ + 1) % evaluate == 0
        rows.append(
            RoundRow(
                step=len(rows) + 1, round=round_, outcome=outcome, available=int(available.sum()),
                asked=0 if cohort is None else len(cohort), included=included, lost_batches=lost_batches,
                training_loss=float(0.2 + 2 * np.exp(-seen) + rng.normal(0, 0.03)) if included else None,
                accuracy=float(0.94 - 0.83 * np.exp(-seen) + rng.normal(0, 0.006)) if measured else None,
                loss=float(0.25 + 2 * np.exp(-seen) + rng.normal(0, 0.015)) if measured else None,
                seconds=float(rng.uniform(0.8, 1.3)), **now._asdict(),
            )
        )  # fmt: skip
    health = None if plan is None else BatchHealth(plan, asked, completed, lost_rounds)
    record = RunRecord(head(aggregation, privacy, users, sealed, seed), tuple(rows))
    evidence = Evidence(
        builder.build(),
        plain=tuple(range(rounds)) if aggregation == PLAIN else (),
        unknown=unknown,
        assumed=tuple(unfinished) if sealed else (),
        plan=plan,
        sealed=sealed and aggregation != PLAIN,
    )
    return RunResult(Path("runs/first"), record, evidence, health, notes)


def _learned(cohort, plan, stays, aggregation, sealed):
    """The sets learned from a cohort of whom some are lost, and the batches that stayed whole."""
    whole = np.zeros(0, dtype=np.int64) if plan is None else np.intersect1d(cohort.batches, plan.whole(stays))
    if not sealed:
        survivors = cohort.users[stays[cohort.users]]
        return ([survivors] if len(survivors) else []), whole
    if aggregation == "open":
        return [np.sort(plan.batch(batch)) for batch in whole], whole
    return ([plan.users_of(whole)] if len(whole) else []), whole
