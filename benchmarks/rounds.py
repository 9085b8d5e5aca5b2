"""Users and rounds to be timed: sealed and unsealed, with the processor's clock on whoever works."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from coterie.secagg import (
    PROTOCOLS,
    BatchRules,
    DeviceConfiguration,
    IdentityKey,
    Quantiser,
    RoundResult,
    ServerRound,
    Task,
    Terms,
    TrustServerForIdentities,
    UnsealedClient,
    found_batch,
    sealed_round,
    simulated_client,
    unsealed_round,
)
from coterie.secagg.crypto import keys

SCOPE, PRIVACY, CLIP = "bench", 6, 1.0


@dataclass
class Spent:
    """What one round took: processor seconds of clients and server, bytes up and down, and messages down."""

    server: float = 0.0
    clients: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    """How often messages went out to the users: round trips of the protocol."""


class Party(Protocol):
    """Users with clients, and the rounds that they can be called to."""

    users: tuple[str, ...]
    clients: dict[str, Any]
    rules: BatchRules

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        ...


def batch_rules(inner: str, users: int, word_bits: int, privacy: int = PRIVACY) -> BatchRules:
    """Return rules under which so many users are added, with equal weights."""
    protocol = PROTOCOLS[inner]
    cohort = protocol.cohort_bound(users, privacy)
    quantiser = Quantiser.in_ring_of(protocol.rings, CLIP, 1, cohort, word_bits=word_bits)
    return BatchRules(SCOPE, privacy, quantiser, inner)


class Unsealed:
    """Users without batches."""

    def __init__(self, users: int, inner: str, word_bits: int = 0) -> None:
        self.rules = batch_rules(inner, users, word_bits)
        device = DeviceConfiguration(scopes={SCOPE}, protocols={inner})
        keys = {f"user-{number:05}": IdentityKey.generate() for number in range(users)}
        trust = TrustServerForIdentities()
        self.clients = {user: UnsealedClient(user, key, device, trust) for user, key in keys.items()}
        self._identities = {user: key.public for user, key in keys.items()}
        self.users = tuple(keys)

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        terms = Terms(b"model", dimension, PROTOCOLS[self.rules.inner].least_included([1], 1))
        return unsealed_round(self.rules, self._identities, number, terms)


class Sealed:
    """Users in batches of T."""

    def __init__(self, users: int, inner: str, word_bits: int = 0, privacy: int = PRIVACY) -> None:
        self.rules = batch_rules(inner, users, word_bits, privacy)
        device = DeviceConfiguration(scopes={SCOPE}, least_privacy=privacy, protocols={inner})
        users -= users % privacy
        self.clients = {name: simulated_client(name, device) for name in (f"user-{n:05}" for n in range(users))}
        self.users = tuple(self.clients)
        groups = (self.users[start : start + privacy] for start in range(0, users, privacy))
        self._charters = [found_batch(self.rules, [self.clients[user] for user in group]) for group in groups]

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        least = PROTOCOLS[self.rules.inner].least_included([self.rules.privacy], self.rules.privacy)
        return sealed_round(self._charters, number, Terms(b"model", dimension, least))


def timed_round(
    party: Party, number: int, vectors: dict[str, Any], lost: frozenset[str] = frozenset(), threads: int = 1
) -> tuple[RoundResult, Spent]:
    """Run one round; `lost` users are gone from the phase on in which vectors leave, the dearest moment.

    The server's turns are timed by themselves: all messages of a phase go out, then all clients answer, then all
    answers come in. Between clients, whose work empties the processor's caches, it would look slower than it is.
    """
    timed = TimedRound(party, number, vectors, threads)
    while timed.outgoing:
        timed.step(lost if timed.spent.messages >= PROTOCOLS[party.rules.inner].upload_phase else frozenset())
    return timed.finish()


class _NeverVerified:
    """Stands in for Ed25519 public keys where nobody verifies."""

    @classmethod
    def from_public_bytes(cls, data: bytes) -> "_NeverVerified":
        """Return a key that takes every signature."""
        del data
        return cls()

    def verify(self, signature: bytes, data: bytes) -> None:
        """Take every signature."""


@contextmanager
def unverified() -> Iterator[None]:
    """Take every signature for a good one."""
    real, keys.Ed25519PublicKey = keys.Ed25519PublicKey, _NeverVerified
    try:
        yield
    finally:
        keys.Ed25519PublicKey = real


class TimedRound:
    """One round, phase by phase, with the clock on whoever works.

    With a `sample`, clients outside it do not verify signatures. What they send is the same, so the server and the
    clients of the sample do all of their work.
    """

    def __init__(
        self,
        party: Party,
        number: int,
        vectors: dict[str, Any],
        threads: int = 1,
        sample: frozenset[str] | None = None,
    ) -> None:
        self.spent, self._party, self._vectors, self._threads = Spent(), party, vectors, threads
        self._sample = sample
        start = time.process_time()
        self._server = party.round(number, len(next(iter(vectors.values()))))
        self.outgoing = self._server.start()
        self.spent.server += time.process_time() - start

    def step(self, gone: frozenset[str]) -> None:
        """Run one phase without those who are gone."""
        spent, users = self.spent, [user for user in self.outgoing if user not in gone]
        spent.messages += 1
        start = time.process_time()
        for user in users:
            spent.down[user] += len(self.outgoing[user])  # some are put together only here
        spent.server += time.process_time() - start
        answers = {user: self._answer(user) for user in users}
        start = time.process_time()
        for user, answer in answers.items():
            if answer is not None:
                self._server.receive(user, answer)
        self.outgoing = self._server.advance()
        spent.server += time.process_time() - start

    def _answer(self, user: str) -> bytes | memoryview | None:
        data, client, spent = self.outgoing[user], self._party.clients[user], self.spent
        trusting = nullcontext() if self._sample is None or user in self._sample else unverified()
        with trusting:
            start = time.process_time()
            answer = client.receive(data)
            if isinstance(answer, Task):
                answer = client.seal(answer, self._vectors[user], threads=self._threads)
            spent.clients[user] += time.process_time() - start
        spent.up[user] += 0 if answer is None else len(answer)
        return answer

    def finish(self) -> tuple[RoundResult, Spent]:
        """Take the sum, and refuse a wrong one: a fast one would be worth nothing."""
        start = time.process_time()
        result = self._server.finish()
        self.spent.server += time.process_time() - start
        _check(result, self._vectors, self._party.rules.quantiser)
        return result, self.spent


def _check(result: RoundResult, vectors: dict[str, Any], quantiser: Quantiser) -> None:
    """Compare a sum with that of the vectors."""
    users = [user for part in result.learned for user in part.users]
    whole = np.sum([vectors[user] for user in users], axis=0, dtype=np.float64)
    if not np.allclose(result.sum.values, whole, atol=len(users) * quantiser.step):
        raise AssertionError("the sum is not the sum of the vectors")
