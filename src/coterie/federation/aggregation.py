"""Forming sealed batches and running their rounds, over whatever transport reaches the users."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from coterie.errors import PeerError, TooFewUsersError, UsageError
from coterie.federation.coordinator import EndedRounds, RoundOutcome, numbers_of
from coterie.federation.ledger import Ledger, Phase, State
from coterie.secagg import (
    DEFAULT_PROTOCOL,
    BatchFounder,
    BatchRules,
    Charter,
    Outgoing,
    ServerRound,
    Terms,
    sealed_round,
    unsealed_round,
)
from coterie.secagg.protocols.interface import RoundPhase, no_answer_reason
from coterie.secagg.wire.framing import Data
from coterie.values import BatchPlan, BoolArray, Cohort


class Transport(Protocol):
    """Carries messages to users and answers back. How long it waits is its own business."""

    def exchange(self, outgoing: Outgoing, moment: RoundPhase) -> Iterable[tuple[str, Data]]:
        """Deliver the messages and yield (user, answer) as answers come; end when the time is over.

        Whoever has not answered by then has timed out. An answer of an earlier moment may come late.
        """
        ...


def form_batches(ledger: Ledger, transport: Transport, rules: BatchRules) -> dict[int, str]:
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
    outgoing: dict[str, bytes] = {}
    for founder in founders.values():
        outgoing |= founder.invitations()
    refused: dict[str, str] = {}
    phase = 0
    while outgoing:
        answers = transport.exchange(outgoing, RoundPhase(None, phase))
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

    def __init__(self, ledger: Ledger, transport: Transport, terms: Terms, inner: str = DEFAULT_PROTOCOL) -> None:
        self._ledger, self._transport, self._terms = ledger, transport, terms
        self.name, self.terms_digest = inner, terms.digest

    def ready(self, plan: BatchPlan | None) -> BoolArray:
        """Return the users whose batch has a charter."""
        plan = _plan(self._ledger) if plan is None else plan
        formed = np.zeros(len(plan) + 1, dtype=np.bool_)  # the last entry speaks for retired users, in batch -1
        formed[list(self._ledger.charters)] = True
        return formed[plan.batch_of]

    def gather(self, round_: int, cohort: Cohort, ended: EndedRounds) -> RoundOutcome:
        """Run a round with the cohort's batches."""
        charters = {batch: Charter.decode(self._ledger.charters[batch]) for batch in cohort.batches.tolist()}
        for batch, charter in charters.items():
            if charter.inner != self.name:
                raise UsageError(f"batch {batch} was formed for {charter.inner}; it takes no part in {self.name}")
        if len(cohort) < self._terms.min_included:
            raise TooFewUsersError(f"the cohort has {len(cohort)} users; a sum needs {self._terms.min_included}")
        server = sealed_round(charters.values(), round_, self._terms)
        batch_of = {charter.digest: batch for batch, charter in charters.items()}
        outcome = drive(server, self._transport, self._ledger, cohort, ended=ended, batch_of=batch_of)
        if outcome.state is State.COMMITTED:
            return outcome
        # Without a result no protocol says which batches were incomplete; who was silent does.
        silent = frozenset[str]().union(*outcome.silent)
        absent = {batch: silent.intersection(charter.identities) for batch, charter in charters.items()}
        return replace(outcome, lost={batch: no_answer_reason(users) for batch, users in absent.items() if users})


class UnsealedAggregation:
    """Secure aggregation without the seal, as elsewhere: who drops out splits a batch. For comparison only."""

    sealed = False

    def __init__(self, ledger: Ledger, transport: Transport, terms: Terms, rules: BatchRules) -> None:
        self._ledger, self._transport, self._terms, self._rules = ledger, transport, terms, rules
        self.name, self.terms_digest = rules.inner, terms.digest

    def ready(self, plan: BatchPlan | None) -> None:
        """Everybody can be asked."""
        del plan

    def gather(self, round_: int, cohort: Cohort, ended: EndedRounds) -> RoundOutcome:
        """Run a round with the cohort's users."""
        names = self._ledger.names
        keys = {names[user]: self._ledger.key_of(user) or b"" for user in cohort.users.tolist()}
        server = unsealed_round(self._rules, keys, round_, self._terms)
        return drive(server, self._transport, self._ledger, cohort, ended=ended, batch_of={})


def drive(
    server: ServerRound,
    transport: Transport,
    ledger: Ledger,
    cohort: Cohort,
    *,
    ended: EndedRounds,
    batch_of: Mapping[bytes, int],
) -> RoundOutcome:
    """Drive a round to its end. `batch_of` gives the number of a batch by its charter's digest.

    What is learned is what the server could open, as the round itself accounts for it (`exposure`), whether or not
    there is a result.
    """
    names = ledger.names
    number = {names[user]: user for user in cohort.users.tolist()}
    silent: list[frozenset[str]] = []
    refused: dict[str, str] = {}
    result, reason = None, ""
    outgoing = server.start()
    try:
        while outgoing:
            ledger.announce(Phase(server.round, len(silent), len(outgoing)))
            for user, data in transport.exchange(outgoing, RoundPhase(server.round, len(silent))):
                try:
                    server.receive(user, data)
                except PeerError as error:
                    refused[user] = str(error)
                    ended.take(user, data)
            silent.append(server.waiting)
            outgoing = server.advance()
        result = server.finish()
    except TooFewUsersError as error:
        reason = str(error)
    exposure = server.exposure()
    ended.add(server, number, exposure)
    sums, lost, liars = ((), {}, {}) if result is None else (result.learned, result.lost, result.liars)
    included = [user for part in sums for user in part.users]
    return RoundOutcome(
        round=server.round,
        state=State.COMMITTED if included else State.ABANDONED,
        cohort=cohort,
        learned=tuple(numbers_of(users, number) for users in exposure.learned),
        alone=numbers_of(exposure.unknown, number),
        included=numbers_of(included, number),
        mean=result.sum.mean if result is not None and included else None,
        lost={batch_of[name]: why for name, why in lost.items() if name in batch_of},
        silent=tuple(silent),
        refused=refused,
        liars=liars,
        reason="" if included else reason or "nobody's update came through",
    )


def _plan(ledger: Ledger) -> BatchPlan:
    if ledger.plan is None:
        raise UsageError("the ledger has no plan; publish one before batches are formed")
    return ledger.plan
