"""Sealed `open` rounds against Flower's SecAgg+ in one run, against their own limits, and as they scale."""

import os
import statistics
import time
from typing import Any

import flower_peer
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from measure import extra_megabytes

from coterie.secagg import DeviceConfiguration, OpenRound, SealedClient, Terms, found_batch, simulated_client
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.crypto.ring import RING_32

PARAMETERS, PRIVACY, PIECE = 1_663_370, 6, 1 << 16
DEVICE = DeviceConfiguration(scopes={"bench"}, least_privacy=PRIVACY, inner={"open"})
MEGABYTES = 4 * PARAMETERS / 1e6


def batches(users: int) -> tuple[list[Any], dict[str, SealedClient]]:
    """Found batches of six."""
    clients = {f"user-{number}": simulated_client(f"user-{number}", DEVICE) for number in range(users)}
    names = list(clients)
    groups = [names[start : start + PRIVACY] for start in range(0, users - PRIVACY + 1, PRIVACY)]
    return [
        found_batch("bench", PRIVACY, [clients[name] for name in group], inner="open") for group in groups
    ], clients


def sealed_round(
    charters: list[Any], clients: dict[str, SealedClient], round_: int, vectors: list[Any], threads: int = 1
) -> dict[str, float]:
    """Run one round; return the median client's seconds, the server's, and the bytes of one upload."""
    terms = Terms(b"model", b"", len(vectors[0]), 1.0, cohort=max(len(clients), 2))
    start = time.perf_counter()
    server = OpenRound(charters, round_, terms)
    calls = server.start()
    served = time.perf_counter() - start
    spent, size = [], 0
    for vector, (user, call) in zip(vectors, calls.items(), strict=False):
        start = time.perf_counter()
        sealed = clients[user].seal(clients[user].receive(call), vector, threads=threads)
        spent.append(time.perf_counter() - start)
        size = len(sealed)
        start = time.perf_counter()
        server.receive(user, sealed)
        served += time.perf_counter() - start
    start = time.perf_counter()
    found = server.finish().sum
    served += time.perf_counter() - start
    if not np.allclose(found.values, np.sum(vectors[: len(calls)], axis=0, dtype=np.float64), atol=1e-3):
        raise AssertionError("the sealed sum is not the sum of the vectors")
    return {"client_s": statistics.median(spent), "server_s": served, "upload_bytes": size}


def raw_keystream(masks: int) -> float:
    """Return the seconds that AES-256-CTR alone takes for the masks of one vector."""
    zeros, buffer = bytes(PIECE), bytearray(PIECE + 16)
    start = time.perf_counter()
    for _ in range(masks):
        encryptor = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        for _ in range(0, 4 * PARAMETERS, PIECE):
            encryptor.update_into(zeros, buffer)
    return time.perf_counter() - start


def quantising(vector: Any) -> float:  # noqa: ANN401 - an array
    """Return the seconds of one pass of quantisation."""
    out = np.empty(len(vector) + 3, dtype=np.uint32)
    quantisation = Terms(b"", b"", len(vector), 1.0, 12).quantisation(RING_32)
    start = time.perf_counter()
    quantise_into(out, vector, 1, quantisation, np.random.default_rng(0))
    return time.perf_counter() - start


def adding(vectors: list[Any]) -> float:
    """Return the seconds that plainly adding the vectors takes."""
    start = time.perf_counter()
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        np.add(total, vector, out=total)
    return time.perf_counter() - start


def median(runs: list[dict[str, float]], key: str) -> float:
    """Return the median of one figure over several runs."""
    return statistics.median(run[key] for run in runs)


def beside_flower(users: int, rng: np.random.Generator) -> dict[str, float]:
    """Compare with Flower's SecAgg+ at the size of the paper's CNN; both are repeated, in turns."""
    vectors = [rng.normal(0, 0.1, PARAMETERS).astype(np.float32).clip(-1, 1) for _ in range(users)]
    charters, clients = batches(users)
    ours, threaded, theirs, aes, quantise, add = [], [], [], [], [], []
    for repeat in range(5):
        theirs.append(flower_peer.run_round(vectors, drops=0))
        ours.append(sealed_round(charters, clients, 2 * repeat, vectors))
        threaded.append(sealed_round(charters, clients, 2 * repeat + 1, vectors, threads=2))
        aes.append(min(raw_keystream(PRIVACY - 1) for _ in range(5)))
        quantise.append(min(quantising(vectors[0]) for _ in range(5)))
        add.append(adding(vectors))
    client, server = median(ours, "client_s"), median(ours, "server_s")
    first = next(iter(clients.values()))
    terms = Terms(b"model", b"", PARAMETERS, 1.0, cohort=users)
    call = OpenRound(charters, 100, terms).start()[first.user]
    task = first.receive(call)
    return {
        "client_s": client,
        "client_two_threads_s": median(threaded, "client_s"),
        "flower_client_s": median(theirs, "client_s"),
        "client_times_faster": median(theirs, "client_s") / client,
        "client_bar": 15,
        "client_over_aes_and_quantisation": client / (min(aes) + min(quantise)),
        "limit_bar": 2,
        "server_s": server,
        "flower_server_s": median(theirs, "server_s"),
        "server_times_faster": median(theirs, "server_s") / server,
        "server_over_plain_adding": server / min(add),
        "upload_bytes_per_parameter": median(ours, "upload_bytes") / PARAMETERS,
        "flower_upload_bytes_per_parameter": median(theirs, "upload_bytes") / PARAMETERS,
        "client_extra_vectors": extra_megabytes(lambda: first.seal(task, vectors[0])) / MEGABYTES,
        "memory_bar_vectors": 3,
    }


def scaling(users: int, rng: np.random.Generator) -> dict[str, float]:
    """Many users with 100 000 parameters each, batch after batch; founding is timed apart."""
    vector = rng.normal(0, 0.1, 100_000).astype(np.float32).clip(-1, 1)
    founding, clients_s, server_s, asked = 0.0, [], 0.0, 0
    while asked < users:
        count = min(600, users - asked) // PRIVACY * PRIVACY or PRIVACY
        start = time.perf_counter()
        charters, clients = batches(count)
        founding += time.perf_counter() - start
        result = sealed_round(charters, clients, 0, [vector] * count)
        clients_s.append(result["client_s"])
        server_s += result["server_s"]
        asked += count
    return {
        "users": asked,
        "client_s": statistics.median(clients_s),
        "server_s": server_s,
        "server_ms_per_user": 1000 * server_s / asked,
        "founding_ms_per_user": 1000 * founding / asked,
    }


def run() -> dict[str, object]:
    """Measure everything."""
    rng = np.random.default_rng(0)
    return {
        "what": f"sealed open rounds, T={PRIVACY}, {PARAMETERS} float32, against Flower 1.41's SecAgg+",
        **{f"{users} users": beside_flower(users, rng) for users in (12, 24)},
        **{f"{users} users of 100000": scaling(users, rng) for users in (1_000, 10_000)},
    }
