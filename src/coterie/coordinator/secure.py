"""Forming sealed batches and running their rounds, over whatever transport reaches the users."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from coterie.coordinator.order import Gathered
from coterie.errors import PeerError, TooFewUsers, UsageError
from coterie.ledger import Ledger
from coterie.secagg import (
    BatchFounder,
    BatchRules,
    Charter,
    Outgoing,
    RoundResult,
    ServerRound,
    Terms,
    sealed_round,
    unsealed_round,
)
from coterie.secagg.wire.framing import Data
from coterie.values import BatchPlan, BoolArray, Cohort, FloatArray, IntArray


class Moment(NamedTuple):
    """Where a message belongs: a round (None while batches are formed) and a phase, counted from 0."""

    round: int | None
    phase: int


class Transport(Protocol):
    """Carries messages to users and answers back. How long it waits is its own business."""

    def exchange(self, outgoing: Outgoing, moment: Moment) -> Iterable[tuple[str, Data]]:
        """Deliver the messages and yield (user, answer) as answers come; end when the time is over.

        Whoever has not answered by then has timed out. An answer of an earlier moment may come late.
        """
        ...


def found_batches(ledger: Ledger, transport: Transport, rules: BatchRules) -> dict[int, str]:
    """Form the plan's batches that have no charter yet, all at once; return those that failed, and why.

    A batch that failed can be tried again at any time; until then its users are not asked. Its rounds begin with
    the ledger's next one.
    """
    plan, names = _plan(ledger), ledger.names
    founders = {
        batch: BatchFounder(rules, [names[user] for user in plan.batch(batch)], first=ledger.next_round)
        for batch in range(len(plan))
        if batch not in ledger.charters
    }
    founder_of = {user: founder for founder in founders.values() for user in founder.users}
    outgoing: Outgoing = {}
    for founder in founders.values():
        outgoing |= founder.invitations()
    refused: dict[str, str] = {}
    phase = 0
    while outgoing:
        answers = transport.exchange(outgoing, Moment(None, phase))
        outgoing, phase = {}, phase + 1
        for user, data in answers:
            if user not in founder_of:
                continue
            try:
                outgoing |= founder_of[user].receive(user, bytes(data))
            except PeerError as error:
                refused[user] = str(error)
    formed = {batch: founder.charter for batch, founder in founders.items() if founder.charter is not None}
    if formed:
        ledger.add_charters({batch: charter.encode() for batch, charter in formed.items()})
    return {
        batch: next((refused[user] for user in founder.users if user in refused), "a member did not answer")
        for batch, founder in founders.items()
        if batch not in formed
    }


class SealedAggregation:
    """Rounds of whole batches under their charters: an incomplete batch gives nothing, whoever asks."""

    sealed = True

    def __init__(self, ledger: Ledger, transport: Transport, terms: Terms, inner: str = "secagg+") -> None:
        self._ledger, self._transport, self._terms = ledger, transport, terms
        self.name, self.terms = inner, terms.digest

    def ready(self, plan: BatchPlan | None) -> BoolArray:
        """Return the users whose batch has a charter."""
        plan = _plan(self._ledger) if plan is None else plan
        formed = np.zeros(len(plan) + 1, dtype=np.bool_)  # the last entry speaks for retired users, in batch -1
        formed[list(self._ledger.charters)] = True
        return formed[plan.batch_of]

    def gather(self, round_: int, cohort: Cohort) -> Gathered:
        """Run a round with the cohort's batches."""
        charters = {batch: Charter.decode(self._ledger.charters[batch]) for batch in cohort.batches.tolist()}
        for batch, charter in charters.items():
            if charter.inner != self.name:
                raise UsageError(f"batch {batch} was formed for {charter.inner}; it takes no part in {self.name}")
        if len(cohort) < self._terms.min_included:
            raise TooFewUsers(f"the cohort has {len(cohort)} users; a sum needs {self._terms.min_included}")
        server = sealed_round(charters.values(), round_, self._terms)
        result, silent, refused, reason = collect(server, self._transport, round_)
        if result is None:
            return Gathered(self._exposed(cohort, server), None, {}, silent, refused, reason)
        lost = {batch: result.lost[c.digest] for batch, c in charters.items() if c.digest in result.lost}
        learned, mean = _opened(self._ledger, cohort, result)
        return Gathered(learned, mean, lost, silent, refused)

    def _exposed(self, cohort: Cohort, server: ServerRound) -> tuple[IntArray, ...]:
        """Return the sets that lay open to the server in a round without a result."""
        number = {self._ledger.names[user]: user for user in cohort.users.tolist()}
        return tuple(np.array(sorted(number[user] for user in users)) for users in server.exposure().learned)


class Collected(NamedTuple):
    """How a round went."""

    result: RoundResult | None
    """None if too few users were left."""
    silent: tuple[frozenset[str], ...]
    """For each phase, the users that were asked and did not answer in time."""
    refused: dict[str, str]
    """Users whose messages broke a rule, and the rule."""
    reason: str = ""
    """Why there is no result."""


class UnsealedAggregation:
    """Secure aggregation without the seal, as elsewhere: who drops out splits a batch. For comparison only."""

    sealed = False

    def __init__(self, ledger: Ledger, transport: Transport, terms: Terms, rules: BatchRules) -> None:
        self._ledger, self._transport, self._terms, self._rules = ledger, transport, terms, rules
        self.name, self.terms = f"unsealed {rules.inner}", terms.digest

    def ready(self, plan: BatchPlan | None) -> None:
        """Everybody can be asked."""
        del plan

    def gather(self, round_: int, cohort: Cohort) -> Gathered:
        """Run a round with the cohort's users."""
        names = self._ledger.names
        keys = {names[user]: self._ledger.key_of(user) or b"" for user in cohort.users.tolist()}
        server = unsealed_round(self._rules, keys, round_, self._terms)
        result, silent, refused, reason = collect(server, self._transport, round_)
        if result is None:
            return Gathered((), None, {}, silent, refused, reason)
        learned, mean = _opened(self._ledger, cohort, result)
        return Gathered(learned, mean, {}, silent, refused)


def collect(server: ServerRound, transport: Transport, round_: int) -> Collected:
    """Drive a round to its end."""
    silent: list[frozenset[str]] = []
    refused: dict[str, str] = {}
    outgoing = server.start()
    try:
        while outgoing:
            for user, data in transport.exchange(outgoing, Moment(round_, len(silent))):
                try:
                    server.receive(user, data)
                except PeerError as error:
                    refused[user] = str(error)
            silent.append(server.waiting)
            outgoing = server.advance()
        return Collected(server.finish(), tuple(silent), refused)
    except TooFewUsers as error:
        return Collected(None, tuple(silent), refused, str(error))


def _opened(ledger: Ledger, cohort: Cohort, result: RoundResult) -> tuple[tuple[IntArray, ...], FloatArray | None]:
    """Return the learned sets by the users' numbers, and the mean over all of them."""
    names = ledger.names
    number = {names[user]: user for user in cohort.users.tolist()}
    learned = tuple(np.array(sorted(number[user] for user in part.users)) for part in result.learned)
    return learned, result.sum.values / result.sum.weight if learned else None


def _plan(ledger: Ledger) -> BatchPlan:
    if ledger.plan is None:
        raise UsageError("the ledger has no plan; publish one before batches are formed")
    return ledger.plan
