"""What an audit judges: learned sets, all that is known about them, and the plan that they should have kept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import numpy as np

from coterie.errors import UsageError
from coterie.values import BatchPlan, IntArray, ParticipationLog
from coterie.values.checks import places_of, starts_of


@dataclass(frozen=True)
class Provenance:
    """Where a log was read: its place, the digest of what was judged, and what the reader understood.

    `digest_of` says what the digest is of: `sha256` of a file's bytes, or `head`, the hash of a ledger's last
    record. `place` holds no password. `notes` say how the log was understood, `warnings` what may be wrong.
    """

    place: str
    digest: str
    digest_of: str = "sha256"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a server learned, and where that is not known.

    - `log` holds a learned set for every sum. Of the rounds listed in `plain` the server saw every update by
      itself: there each user is a learned set of its own, and is made one here if the log has the sum only.
    - `unknown` gives, for rounds of which it is not known what was learned, the users who sent something. Each
      of them may have been seen alone, so nothing is proven of them: they count as alone in `worst_case`.
    - `assumed` are sealed rounds that were cut off. The log has every batch that was asked in them as learned.
    - `plan` is what the log is held against, from round `plan_since` on; `plan_numbers` gives each user's number
      in it, -1 for none (the same numbers unless given). `sealed` says that the users' keys hold further rounds
      to that plan.
    - `overrides` are users whose owner let the device leave its batch: the log has the sums of both batches.

    >>> log = ParticipationLog.from_dense([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> [users.tolist() for _, users in Evidence(log, plain=(1,)).log.sets()]
    [[0, 1, 2, 3], [0], [1]]
    >>> evidence = Evidence(log, unknown={5: [2, 3]})
    >>> evidence.certain, [(round_, users.tolist()) for round_, users in evidence.worst_case.sets()][-1]
    (False, (5, [3]))
    """

    log: ParticipationLog
    plain: tuple[int, ...] = ()
    unknown: Mapping[int, IntArray] = field(default_factory=dict)
    assumed: tuple[int, ...] = ()
    plan: BatchPlan | None = None
    plan_numbers: IntArray | None = None
    plan_since: int = 0
    sealed: bool = False
    overrides: tuple[int, ...] = ()
    source: Provenance | None = None

    def __post_init__(self) -> None:
        set_rounds = self.log.set_rounds
        plain = np.intersect1d(np.array(self.plain, dtype=np.int64), set_rounds)
        object.__setattr__(self, "plain", tuple(plain.tolist()))
        object.__setattr__(self, "log", _alone_in(self.log, plain))
        unknown = {
            int(round_): np.unique(np.asarray(users, dtype=np.int64)) for round_, users in self.unknown.items()
        }
        object.__setattr__(self, "unknown", dict(sorted(unknown.items())))
        if self.plan is not None and self.plan_numbers is None:
            if self.log.users > self.plan.users:
                raise UsageError(
                    f"the log has {self.log.users} users, the plan {self.plan.users}; give the plan of this log"
                )
            object.__setattr__(self, "plan_numbers", np.arange(self.log.users))
        for round_, users in unknown.items():
            if len(users) and not 0 <= users[0] <= users[-1] < self.log.users:
                raise UsageError(f"round {round_} names user {users[-1]}, but the log has {self.log.users} users")

    @cached_property
    def batch_of(self) -> IntArray | None:
        """The batch of each user of the log, -1 for none; None without a plan."""
        if self.plan is None or self.plan_numbers is None:
            return None
        return np.append(self.plan.batch_of, -1)[self.plan_numbers]

    @cached_property
    def certain(self) -> bool:
        """Whether it is known what the server learned of everyone who sent something."""
        return not any(len(users) for users in self.unknown.values())

    @cached_property
    def unknown_users(self) -> IntArray:
        """The users who sent something in a round of which it is not known what was learned."""
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *self.unknown.values()]))

    @cached_property
    def worst_case(self) -> ParticipationLog:
        """The log with everything that may have been learned: a level judged by it is never above the true one."""
        if self.certain:
            return self.log
        log = self.log
        rounds = np.concatenate([np.full(len(users), round_) for round_, users in self.unknown.items()])
        first = min(log.first, *rounds.tolist()) if log.rounds else int(rounds.min())
        last = max(log.first + log.rounds, int(rounds.max()) + 1)
        set_rounds = np.concatenate((log.set_rounds, rounds))
        sizes = np.concatenate((np.diff(log.starts), np.ones(len(rounds), dtype=np.int64)))
        members = np.concatenate((log.members, *self.unknown.values()))
        starts = np.cumsum(sizes) - sizes
        order = np.argsort(set_rounds, kind="stable")
        return replace(
            log,
            rounds=last - first,
            set_rounds=set_rounds[order],
            starts=starts_of(sizes[order]),
            members=members[places_of(starts[order], sizes[order])],
            first=first,
        )

    def only(self, users: IntArray) -> "Evidence":
        """Return the evidence about some users (sorted), numbered anew; unseen users cost nothing."""
        return replace(
            self,
            log=self.log.only(users),
            unknown={round_: _places(senders, users) for round_, senders in self.unknown.items()},
            plan_numbers=None if self.plan_numbers is None else self.plan_numbers[users],
            overrides=tuple(_places(np.array(self.overrides, dtype=np.int64), users).tolist()),
        )

    def without(self, users: IntArray) -> "Evidence":
        """Return the evidence about the others: the server subtracts what these users told it from every sum."""
        return self.only(np.setdiff1d(np.arange(self.log.users), users))


def _places(some: IntArray, users: IntArray) -> IntArray:
    """Return the places of those wanted among the users; who is not there is left out."""
    return np.searchsorted(users, np.intersect1d(some, users))


def _alone_in(log: ParticipationLog, rounds: IntArray) -> ParticipationLog:
    """Return the log in which, in the given rounds, every user of a learned set is a learned set of its own."""
    sizes = np.diff(log.starts)
    cut = np.isin(log.set_rounds, rounds) & (sizes > 1)
    if not cut.any():
        return log
    parts = np.where(cut, sizes, 1)
    pieces = np.repeat(np.where(cut, 1, sizes), parts)
    return replace(log, set_rounds=np.repeat(log.set_rounds, parts), starts=starts_of(pieces))


@dataclass(frozen=True)
class Breach:
    """A learned set that holds part of a batch, or users of no batch (`batch` is None)."""

    round: int
    batch: int | None
    present: tuple[int, ...]
    missing: tuple[int, ...]


def breaches(evidence: Evidence) -> list[Breach] | None:
    """Return where a log left its plan; None without a plan.

    `present` are numbers of the log, `missing` numbers of the plan. In a plain round every user is a learned set
    of its own by the way of aggregation; there the plan is broken only if a batch did not come whole.

    >>> from coterie.values import BatchPlan, ParticipationLog
    >>> plan = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 1], [2, 3, 4]])
    >>> breaches(Evidence(ParticipationLog.from_dense([[1, 1, 0, 0, 0], [1, 1, 1, 0, 1]]), plan=plan))
    [Breach(round=1, batch=1, present=(2, 4), missing=(3,))]
    """
    plan, numbers, batch_of = evidence.plan, evidence.plan_numbers, evidence.batch_of
    if plan is None or numbers is None or batch_of is None:
        return None
    left: list[Breach] = []
    for round_, members in cohorts(evidence):
        batches = batch_of[members]
        for batch, count in zip(*(part.tolist() for part in np.unique(batches, return_counts=True)), strict=True):
            present = tuple(members[batches == batch].tolist())
            if batch < 0:
                left.append(Breach(round_, None, present, ()))
            elif count < plan.sizes[batch]:
                missing = np.setdiff1d(plan.batch(batch), numbers[list(present)])
                left.append(Breach(round_, batch, present, tuple(missing.tolist())))
    return left


def cohorts(evidence: Evidence) -> Iterator[tuple[int, IntArray]]:
    """Yield the learned sets of the plan's rounds, those of a plain round as one."""
    plain = set(evidence.plain)
    for round_, sets in groupby(evidence.log.sets(), key=itemgetter(0)):
        if round_ >= evidence.plan_since:
            members = [users for _, users in sets]
            if round_ in plain:
                members = [np.unique(np.concatenate(members))]
            yield from ((round_, users) for users in members)
