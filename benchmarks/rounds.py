"""Users and rounds to be timed: sealed and unsealed, with the clock on whoever works."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from coterie.secagg import (
    PROTOCOLS,
    BatchRules,
    Client,
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

SCOPE, PRIVACY, CLIP = "bench", 6, 1.0


@dataclass
class Spent:
    """What one round took: seconds of each client and of the server, bytes up and down, and messages down."""

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


def batch_rules(inner: str, users: int, word_bits: int) -> BatchRules:
    """Return rules under which so many users are added, with equal weights."""
    protocol = PROTOCOLS[inner]
    cohort = protocol.cohort_bound(users, PRIVACY)
    quantiser = Quantiser.in_ring_of(protocol.rings, CLIP, 1, cohort, word_bits=word_bits)
    return BatchRules(SCOPE, PRIVACY, quantiser, inner)


class Unsealed:
    """Users without batches."""

    def __init__(self, users: int, inner: str, word_bits: int = 0) -> None:
        self.rules = batch_rules(inner, users, word_bits)
        device = DeviceConfiguration(scopes={SCOPE}, inner={inner})
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

    def __init__(self, users: int, inner: str, word_bits: int = 0) -> None:
        self.rules = batch_rules(inner, users, word_bits)
        device = DeviceConfiguration(scopes={SCOPE}, least_privacy=PRIVACY, inner={inner})
        users -= users % PRIVACY
        self.clients = {name: simulated_client(name, device) for name in (f"user-{n:05}" for n in range(users))}
        self.users = tuple(self.clients)
        groups = (self.users[start : start + PRIVACY] for start in range(0, users, PRIVACY))
        self._charters = [found_batch(self.rules, [self.clients[user] for user in group]) for group in groups]

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        least = PROTOCOLS[self.rules.inner].least_included([PRIVACY], PRIVACY)
        return sealed_round(self._charters, number, Terms(b"model", dimension, least))


def timed_round(
    party: Party, number: int, vectors: dict[str, Any], lost: frozenset[str] = frozenset(), threads: int = 1
) -> tuple[RoundResult, Spent]:
    """Run one round; `lost` users are gone from the phase on in which vectors leave, the dearest moment."""
    spent, clients, upload = Spent(), party.clients, PROTOCOLS[party.rules.inner].upload_phase
    start = time.perf_counter()
    server = party.round(number, len(next(iter(vectors.values()))))
    outgoing, phase = server.start(), 0
    spent.server += time.perf_counter() - start
    while outgoing:
        spent.messages += 1
        gone = lost if phase >= upload else frozenset()
        for user, data in outgoing.items():
            if user in gone:
                continue
            spent.down[user] += len(data)
            start = time.perf_counter()
            answer = _answer(clients[user], data, vectors[user], threads)
            spent.clients[user] += time.perf_counter() - start
            if answer is not None:
                spent.up[user] += len(answer)
                start = time.perf_counter()
                server.receive(user, answer)
                spent.server += time.perf_counter() - start
        start = time.perf_counter()
        outgoing, phase = server.advance(), phase + 1
        spent.server += time.perf_counter() - start
    start = time.perf_counter()
    result = server.finish()
    spent.server += time.perf_counter() - start
    _check(result, vectors, party.rules.quantiser)
    return result, spent


def _answer(client: Client, data: bytes, vector: Any, threads: int) -> bytes | memoryview | None:  # noqa: ANN401
    answer = client.receive(data)
    return client.seal(answer, vector, threads=threads) if isinstance(answer, Task) else answer


def _check(result: RoundResult, vectors: dict[str, Any], quantiser: Quantiser) -> None:
    """Refuse a wrong sum: a fast one would be worth nothing."""
    users = [user for part in result.learned for user in part.users]
    whole = np.sum([vectors[user] for user in users], axis=0, dtype=np.float64)
    if not np.allclose(result.sum.values, whole, atol=len(users) * quantiser.step):
        raise AssertionError("the sum is not the sum of the vectors")
