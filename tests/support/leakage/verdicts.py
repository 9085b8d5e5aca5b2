"""Audits for tests of their page: logs of every kind that a verdict can be about, examined for real."""

from functools import cache

import numpy as np

from coterie.leakage import Evidence, Provenance, Question, examine
from coterie.selection import BatchSelector, RandomSelector, shuffled
from coterie.values import LogBuilder, ParticipationLog

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '<a href="javascript:alert(3)">ana</a>',
    "<b>bea</b>",
    "`%{x}{{ 7 * 7 }}",
    "turned\u202eround\nand\x1b[31m on",
    "n" * 5000,
)


SOURCE = Provenance("log.csv", "0f" * 32)


def examined(log, question=None, seconds=1.0, looks=3000, **known):
    """The verdict of a log, with the same draws every time, and a budget counted in looks at the clock."""
    clock = iter(np.linspace(seconds, 0, looks).tolist())
    evidence = Evidence(log, source=SOURCE, **known)
    return examine(evidence, question, rng=np.random.default_rng(3), time_left=lambda: next(clock, 0.0))


def selected(selector, users, rounds, *, names=None, first=0, away=0.0, lost=0.0):
    """The log of a federation: some users are away, and some are lost on the way."""
    rng = np.random.default_rng(7)
    builder, counts = LogBuilder(users, names, first), np.zeros(users, dtype=np.int64)
    for _ in range(rounds):
        cohort = selector.choose(rng.random(users) >= away, counts, rng)
        if cohort is None:
            builder.append()
            continue
        stayed = cohort.users[rng.random(len(cohort)) >= lost]
        builder.append(*([stayed] if len(stayed) else []))
        counts[stayed] += 1
    return builder.build()


def random_log(users=40, per_round=8, rounds=38, **options):
    """Users drawn at random, as most federations do; after 38 rounds of 40 users some are isolated."""
    return selected(RandomSelector(per_round), users, rounds, **options)


def batch_log(users=60, per_round=12, privacy=6, rounds=40, **options):
    """Users in whole batches, and the plan."""
    plan = shuffled(users, privacy, np.random.default_rng(5))
    return selected(BatchSelector(plan, per_round), users, rounds, **options), plan


def split_log():
    """Batches, of which two rounds held only a part, and the plan."""
    log, plan = batch_log(away=0.02)
    sets = {round_: users.tolist() for round_, users in log.sets()}
    for round_, lost in ((9, 1), (21, 2)):
        sets[round_] = sets[round_][lost:]
    builder = LogBuilder(log.users)
    for round_ in range(log.rounds):
        builder.append(*([sets[round_]] if round_ in sets else []))
    return builder.build(), plan


def names(count):
    """Hostile names first, then tame ones."""
    return [*HOSTILE, *(f"user-{number:02d}" for number in range(len(HOSTILE), count))][:count]


TRIANGLE = ParticipationLog.from_dense(
    [[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]], names=["ann", "bob", "cem", "dan"]
)
"""Three pairs of three users: half of (1 - 2 + 3) is ann alone."""


KINDS = (
    "exposed", "alone", "everyone", "bracket", "apart", "batches", "kept", "sealed", "breached", "unknown",
    "unknown and exposed", "unknown alone", "plain", "plain once", "assumed", "overridden", "named colluders",
    "stopped", "hostile", "long", "empty",
)  # fmt: skip
"""What a verdict can be about."""


@cache
def verdicts():
    """One verdict of each kind, by name."""
    batches, plan = batch_log(away=0.05)
    split, split_plan = split_log()
    dropping, _ = batch_log(40, 12, 4, 45, lost=0.04, names=[f"device-{number:02d}" for number in range(40)])
    met = Question(required=6)
    stopped = examine(
        random_log(rounds=60), rng=np.random.default_rng(0), time_left=lambda: 0.0, should_stop=lambda: True
    )
    return {
        "exposed": examined(dropping, Question(required=4)),
        "alone": examined(random_log()),
        "everyone": examined(random_log(rounds=60)),
        "bracket": examined(random_log(users=120, per_round=12, rounds=70), seconds=0.01, looks=400),
        "apart": examined(ParticipationLog.from_dense([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])),
        "batches": examined(batches, Question(required=6, window=10, colluders=2), plan=plan),
        "kept": examined(batches, met, plan=plan),
        "sealed": examined(batches, met, plan=plan, sealed=True),
        "breached": examined(split, met, plan=split_plan),
        "unknown": examined(batches, met, unknown={11: [0, 1, 2], 12: range(60), 30: [4]}),
        "unknown and exposed": examined(random_log(), unknown={11: [0, 1, 2]}),
        "unknown alone": examined(LogBuilder(5).build(), Question(required=1), unknown={0: [3]}),
        "plain": examined(batches, met, plan=plan, plain=range(40)),
        "plain once": examined(batches, met, plan=plan, plain=(3,)),
        "assumed": examined(batches, met, plan=plan, sealed=True, assumed=(4,)),
        "overridden": examined(split, met, plan=split_plan, sealed=True, overrides=(3, 4)),
        "named colluders": examined(batches, Question(required=6, named_colluders=(0, 7)), plan=plan),
        "stopped": stopped,
        "hostile": examined(random_log(rounds=60, names=names(40)), Question(window=5)),
        "long": examined(random_log(users=160, per_round=12, rounds=180)),
        "empty": examined(LogBuilder(5).build(), Question(required=3)),
    }
