"""`open` rounds: the server sees the sum of each complete batch, and of an incomplete one only noise (§3, §4)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index

import numpy as np
from numpy.typing import NDArray

from coterie.errors import PeerError, TooFewUsers, UsageError
from coterie.secagg.charter import Charter, check_rules
from coterie.secagg.founding import Outgoing
from coterie.secagg.membership import Membership, Record
from coterie.secagg.messages import (
    Data,
    Draft,
    Founding,
    Invitation,
    RoundCall,
    SealedVector,
    blank,
    decode_from_client,
    decode_from_server,
    encode,
)
from coterie.secagg.prg import mask_into
from coterie.secagg.ring import EXTRA_WORDS, Layout, Ring, Sum, dequantise
from coterie.secagg.seal import Terms, check_terms, seal_masks
from coterie.secagg.states import CLIENT_TAKING, SERVER_COLLECTING, Collecting, Taking, following

INNER = "open"
"""The inner protocol's name in a charter: a batch founded for another one never shows its own sum."""

LARGEST_HEAD = 4096
"""Bytes that a sealed message has at most before its words."""

Arrays = NDArray[np.floating] | Mapping[str, NDArray[np.floating]]


@dataclass(frozen=True)
class Task:
    """What the server asks of a device in one round: train on these terms, then seal the update."""

    scope: str
    charter: bytes
    round: int
    terms: Terms


class OpenClient:
    """One user's side of sealed `open` rounds.

    Give it the server's bytes with `receive`: it answers with bytes to send, or with a `Task`. Train, then
    `seal` the update and send the result.
    """

    def __init__(self, membership: Membership, largest_message: int = 1 << 28) -> None:
        self.membership = membership
        self._largest_message = largest_message
        self._tasks: dict[str, Task] = {}

    @property
    def user(self) -> str:
        """The user's id."""
        return self.membership.user

    def receive(self, data: Data) -> bytes | Task:
        """Take in a message from the server; a violation raises PeerError and changes nothing."""
        message = decode_from_server(data, self._largest_message)
        match message:
            case Invitation():
                return self.membership.invited(message)
            case Draft():
                return self.membership.drafted(message)
            case Founding():
                return self.membership.founded(message)
            case RoundCall():
                return self._called(message)

    def _called(self, message: RoundCall) -> Task:
        try:
            terms = Terms(
                message.model, message.configuration, message.dimension, message.clip, message.cohort,
                message.weight_cap,
            )  # fmt: skip
        except UsageError as error:
            raise PeerError(f"the server's terms are impossible: {error}") from None
        task = Task(message.scope, message.charter, message.round, terms)
        with self.membership.record(message.scope) as record:
            following(CLIENT_TAKING, self._state(record, message.scope), message, "the server")
            self._check(task, record)
        self._tasks[message.scope] = task
        return task

    def _state(self, record: Record, scope: str) -> Taking:
        if not record.charter:
            return Taking.OUTSIDE
        return Taking.CALLED if scope in self._tasks else Taking.READY

    def _check(self, task: Task, record: Record) -> Charter:
        """Refuse a round that this device must not seal (§3); return its charter."""
        charter = record.in_force
        if task.charter != charter.digest:
            raise PeerError(
                f"the server asked for a round of charter {task.charter.hex()}; this device is under "
                f"{charter.digest.hex()}"
            )
        check_rules(charter, self.membership.configuration)
        if charter.inner != INNER:
            raise PeerError(f"the server called an {INNER} round; this batch was founded for {charter.inner!r}")
        others = {member.user for member in charter.members if member.user != self.user}
        mine = (self.user, self.membership.identity.public)
        if record.chain_keys.keys() != others or mine not in {(m.user, m.identity) for m in charter.members}:
            raise UsageError(
                f"the device's record of scope {task.scope!r} is not one of {self.user!r}; use its own"
            )
        record.chain.check_round(task.round)
        check_terms(task.terms, len(charter.members), self.membership.configuration)
        try:
            task.terms.quantisation(Ring(charter.modulus))
        except UsageError as error:
            raise PeerError(f"the server's terms could wrap around: {error}") from None
        return charter

    def seal(
        self,
        task: Task,
        update: Arrays,
        *,
        weight: int = 1,
        rng: np.random.Generator | None = None,
        threads: int = 1,
    ) -> memoryview:
        """Return the sealed message of a task: quantised, masked, and durable on the device before it leaves.

        The chain moves past the round in the same transaction (§3). A weight above the terms' cap counts as the
        cap. An update that is not finite is refused: `abstain` then. `rng` rounds; it keeps no secret.
        """
        if self._tasks.get(task.scope) != task:
            raise UsageError(f"round {task.round} of scope {task.scope!r} is not the one that was asked for last")
        values = Layout.of(update).flatten(update)
        if values.size != task.terms.dimension:
            raise UsageError(f"the update has {values.size} values; the terms ask for {task.terms.dimension}")
        with self.membership.record(task.scope) as record:
            charter = self._check(task, record)
            chain = record.chain.advance(task.round)
            masks = seal_masks(chain, task.round, task.terms.digest, self.user)
            head = SealedVector(task.scope, task.charter, task.round, self.user, task.terms.digest)
            message, tail = blank(head, 4 * (values.size + EXTRA_WORDS))
            ring = Ring(charter.modulus)
            words = np.frombuffer(tail, dtype="<u4")
            rounding = np.random.default_rng() if rng is None else rng
            mask_into(
                words,
                values,
                _capped(weight, task.terms.weight_cap),
                task.terms.quantisation(ring),
                masks,
                rounding,
                threads=threads,
            )
            record.move_chain(chain.advance(task.round + 1))
            record.sealed_charter = record.charter
            sealed = message.toreadonly()
            record.sealed_round, record.sealed_message = task.round, sealed
        if self._tasks.get(task.scope) is task:
            del self._tasks[task.scope]
        return sealed

    def abstain(self, task: Task) -> memoryview:
        """Seal zeros, which nobody can tell from an update: for a user who cannot or will not give one.

        Staying silent instead would tell the server something of this user's data whenever the reason lies in
        the data: a training that diverged, an update that is not finite (§1).
        """
        return self.seal(task, np.zeros(task.terms.dimension, dtype=np.float32))

    def sealed_again(self, scope: str, round_: int) -> memoryview:
        """Return the stored bytes of the last sealed round, to send them once more after a lost connection."""
        with self.membership.record(scope) as record:
            if record.sealed_round != round_ or record.sealed_round < 0:
                raise UsageError(f"round {round_} of scope {scope!r} is not the last that this device sealed")
            return record.sealed_message


def _capped(weight: int, cap: int) -> int:
    """Return a weight, at most the cap; refuse what is no weight at all."""
    try:
        whole = index(weight)
    except TypeError:
        whole = 0
    if whole < 1:
        raise UsageError(f"the weight is {weight!r}; give a whole number from 1 up")
    return min(whole, cap)


@dataclass(frozen=True)
class BatchSum:
    """The sum of one complete batch."""

    users: tuple[str, ...]
    sum: Sum


@dataclass(frozen=True)
class OpenResult:
    """What an `open` round gave: the sum of each complete batch, and why the other batches gave none."""

    round: int
    batches: tuple[BatchSum, ...]
    lost: dict[bytes, str]
    """Charter digest of a batch without a result, and the reason."""

    @property
    def sum(self) -> Sum:
        """The weighted sum over all complete batches."""
        values = np.sum([batch.sum.values for batch in self.batches], axis=0)
        return Sum(values, sum(batch.sum.weight for batch in self.batches))


class OpenRound:
    """The server's side of one sealed `open` round over several batches."""

    def __init__(self, charters: Iterable[Charter], round_: int, terms: Terms, least_batches: int = 1) -> None:
        self.charters = tuple(charters)
        self.round, self.terms, self._least = round_, terms, least_batches
        self._batch_of = {member.user: charter for charter in self.charters for member in charter.members}
        users = sum(len(charter.members) for charter in self.charters)
        if len(self._batch_of) != users:
            raise UsageError("a user is in two of the batches of this round")
        if users > terms.cohort:
            raise UsageError(f"{users} users are asked, more than the {terms.cohort} that the terms allow")
        self._ring = {charter.digest: Ring(charter.modulus) for charter in self.charters}
        for ring in self._ring.values():
            terms.quantisation(ring)  # refuses terms whose sum could wrap around, before anyone is called
        self._states = dict.fromkeys(self._batch_of, Collecting.ASKED)
        self._sums: dict[bytes, NDArray[np.uint32]] = {}

    def calls(self) -> Outgoing:
        """Return the first messages: the same bytes for all members of a batch."""
        outgoing = {}
        terms = self.terms
        for charter in self.charters:
            call = RoundCall(
                scope=charter.scope,
                charter=charter.digest,
                round=self.round,
                model=terms.model,
                configuration=terms.configuration,
                dimension=terms.dimension,
                clip=terms.clip,
                cohort=terms.cohort,
                weight_cap=terms.weight_cap,
            )
            data = encode(call)
            outgoing.update(dict.fromkeys((member.user for member in charter.members), data))
        return outgoing

    def receive(self, user: str, data: Data) -> None:
        """Take in a user's sealed vector; a violation raises PeerError and changes nothing."""
        if user not in self._states:
            raise PeerError(f"a message came from {user!r}, who was not asked in this round")
        size = 4 * (self.terms.dimension + EXTRA_WORDS)
        message, tail = decode_from_client(data, largest=size + LARGEST_HEAD)
        state = following(SERVER_COLLECTING, self._states[user], message, user)
        if not isinstance(message, SealedVector):
            raise PeerError(f"{type(message).__name__} came from {user}, not a sealed vector")
        charter = self._batch_of[user]
        said = (message.scope, message.charter, message.round, message.user, message.terms)
        meant = (charter.scope, charter.digest, self.round, user, self.terms.digest)
        names = ("scope", "charter", "round", "user", "terms")
        for name, came, expected in zip(names, said, meant, strict=True):
            if came != expected:
                raise PeerError(f"{user} sealed for another {name}: {came!r}, not {expected!r}")
        if len(tail) != size:
            raise PeerError(f"{user} sent {len(tail)} bytes of words, not {size}")
        words = np.frombuffer(tail, dtype="<u4")
        ring = self._ring[charter.digest]
        if ring.modulus < 2**32 and words.max() >= ring.modulus:
            raise PeerError(f"{user} sent a word that is not below {ring.modulus}")
        if charter.digest in self._sums:
            ring.add_into(self._sums[charter.digest], words)
        else:
            self._sums[charter.digest] = words.copy()
        self._states[user] = state

    def missing(self) -> tuple[str, ...]:
        """Return the users whose vector has not come."""
        return tuple(user for user, state in self._states.items() if state is Collecting.ASKED)

    def finish(self) -> OpenResult:
        """End the round with what has come; TooFewUsers if fewer batches than needed are complete."""
        missing = set(self.missing())
        found, lost = [], {}
        for charter in self.charters:
            users = tuple(member.user for member in charter.members)
            absent = [user for user in users if user in missing]
            if absent:
                lost[charter.digest] = f"{len(absent)} of {len(users)} users did not answer"
                continue
            quantisation = self.terms.quantisation(self._ring[charter.digest])
            try:
                found.append(BatchSum(users, dequantise(self._sums[charter.digest], quantisation, len(users))))
            except PeerError as error:
                lost[charter.digest] = str(error)
        if len(found) < self._least:
            raise TooFewUsers(
                f"{len(found)} of {len(self.charters)} batches gave a sum in round {self.round}; "
                f"{self._least} are needed"
            )
        return OpenResult(self.round, tuple(found), lost)
