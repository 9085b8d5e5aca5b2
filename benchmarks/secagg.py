"""SecAgg+, unsealed and sealed, against Flower's in one run."""

import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import flower_peer
import numpy as np
import seal

from coterie.secagg import (
    Client,
    DeviceConfiguration,
    IdentityKey,
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

PARAMETERS, PRIVACY, SCOPE, REPEATS = seal.PARAMETERS, seal.PRIVACY, "bench", 5
UPLOAD = {"open": 0, "secagg": 2, "secagg+": 2}
"""The phase before which users are lost: the dearest moment, when everyone has shared with them."""


@dataclass
class Spent:
    """What one round took: seconds of each client and of the server, bytes up and down of each client."""

    server: float = 0.0
    clients: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)


def timed_round(
    server: ServerRound, clients: dict[str, Client], vectors: dict[str, Any], lost: set[str], upload: int
) -> tuple[Any, Spent]:
    """Run one round with the clock on whoever works; `lost` users are gone from the phase `upload` on."""
    spent = Spent()
    start = time.perf_counter()
    outgoing, phase = server.start(), 0
    spent.server += time.perf_counter() - start
    while outgoing:
        gone = lost if phase >= upload else set()
        for user, data in outgoing.items():
            if user in gone:
                continue
            spent.down[user] += len(data)
            start = time.perf_counter()
            answer = clients[user].receive(data)
            if isinstance(answer, Task):
                answer = clients[user].seal(answer, vectors[user])
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
    return result, spent


class Unsealed:
    """Users without batches, and their rounds."""

    def __init__(self, users: int, inner: str) -> None:
        device = DeviceConfiguration(scopes={SCOPE}, inner={inner})
        keys = {f"user-{number:04}": IdentityKey.generate() for number in range(users)}
        trust = TrustServerForIdentities()
        self.clients = {user: UnsealedClient(user, key, device, trust) for user, key in keys.items()}
        self._identities, self._inner = {user: key.public for user, key in keys.items()}, inner
        self.users = tuple(keys)

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        terms = Terms(b"model", b"", dimension, 1.0, cohort=len(self.users), min_included=2)
        return unsealed_round(self._inner, SCOPE, self._identities, number, terms)

    def losing(self, count: int) -> set[str]:
        """Return the first users."""
        return set(self.users[:count])


class Sealed:
    """Users in batches of T, and their rounds."""

    def __init__(self, users: int, inner: str) -> None:
        device = DeviceConfiguration(scopes={SCOPE}, least_privacy=PRIVACY, inner={inner})
        users -= users % PRIVACY
        self.clients = {name: simulated_client(name, device) for name in (f"user-{n:04}" for n in range(users))}
        self.users = tuple(self.clients)
        groups = (self.users[start : start + PRIVACY] for start in range(0, users, PRIVACY))
        self._charters = [found_batch(SCOPE, PRIVACY, [self.clients[u] for u in group], inner) for group in groups]

    def round(self, number: int, dimension: int) -> ServerRound:
        """Return the server's side of a round."""
        terms = Terms(b"model", b"", dimension, 1.0, cohort=len(self.users), min_included=2 * PRIVACY)
        return sealed_round(self._charters, number, terms)

    def losing(self, count: int) -> set[str]:
        """Return the first users: of few batches, since a lost user takes its batch along."""
        return set(self.users[:count])


def check(result: Any, vectors: dict[str, Any]) -> None:  # noqa: ANN401 - a round's result
    """Refuse a wrong sum: a fast one would be worth nothing."""
    users = [user for part in result.learned for user in part.users]
    whole = np.sum([vectors[user] for user in users], axis=0, dtype=np.float64)
    if not np.allclose(result.sum.values, whole, atol=1e-3):
        raise AssertionError("the sum is not the sum of the vectors")


def middle(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def beside_flower(users: int, drops: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compare with Flower's SecAgg+ at the size of the paper's CNN; all are repeated, in turns."""
    arrays = [rng.normal(0, 0.1, PARAMETERS).astype(np.float32).clip(-1, 1) for _ in range(users)]
    parties = {"unsealed": Unsealed(users, "secagg+")}
    if drops == 0 or users >= 3 * PRIVACY:  # a sealed sum has two batches at least
        parties["sealed"] = Sealed(users, "secagg+")
    theirs, ours = [], {kind: [] for kind in parties}
    for repeat in range(REPEATS):
        theirs.append(flower_peer.run_round(arrays, drops))
        for kind, party in parties.items():
            vectors = dict(zip(party.users, arrays, strict=True))
            result, spent = timed_round(
                party.round(repeat, PARAMETERS), party.clients, vectors, party.losing(drops), UPLOAD["secagg+"]
            )
            check(result, vectors)
            left = [user for user in party.users if user not in party.losing(drops)]
            ours[kind].append(
                {
                    "client_s": middle(spent.clients[user] for user in left),
                    "server_s": spent.server,
                    "upload_bytes": max(spent.up.values()),
                }
            )
    flower = {key: middle(run[key] for run in theirs) for key in theirs[0]}
    found: dict[str, Any] = {f"flower_{key}": value for key, value in flower.items()}
    quantise = min(seal.quantising(arrays[0]) for _ in range(REPEATS))
    for kind, runs in ours.items():
        own = {key: middle(run[key] for run in runs) for key in runs[0]}
        # Masks of a client: with everyone else, or with everyone of another batch and with its own; and one more.
        aes = min(seal.raw_keystream(users) for _ in range(REPEATS))
        found[kind] = {
            **own,
            "client_times_faster": flower["client_s"] / own["client_s"],
            "client_bar": {"unsealed": 8, "sealed": 6}[kind],
            "client_over_aes_and_quantisation": own["client_s"] / (aes + quantise),
            "server_times_faster": flower["server_s"] / own["server_s"],
            "server_bar": 10,
            "upload_bytes_per_parameter": own["upload_bytes"] / PARAMETERS,
        }
    return found


def run() -> dict[str, object]:
    """Measure everything."""
    rng = np.random.default_rng(0)
    return {
        "what": f"SecAgg+, {PARAMETERS} float32, unsealed and sealed (T={PRIVACY}), one thread, and Flower 1.41",
        **{
            f"{users} users, {drops} dropped": beside_flower(users, drops, rng)
            for users in (12, 24)
            for drops in (0, 2)
        },
    }
