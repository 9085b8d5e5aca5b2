"""Our protocols against Flower's SecAgg+ in one run, and against what their masks cost at least."""

import os
import statistics
import time
from typing import Any

import flower_peer
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from measure import extra_megabytes
from rounds import PRIVACY, Party, Sealed, Unsealed, timed_round

from coterie.secagg import Parameters, Quantiser, Seed, Task
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.protocols.agreement.roster import sparse_neighbourhood

PARAMETERS, PIECE, REPEATS = 1_663_370, 1 << 16, 5
CLIENT_BARS = {"unsealed secagg": 12, "unsealed secagg+": 12, "sealed secagg+": 12, "sealed open": 25}
SERVER_BAR, LIMIT_BAR = 20, 1.5


def raw_keystream(masks: int, bytes_each: int) -> float:
    """Return the seconds that AES-256-CTR alone takes for so many masks of one vector."""
    zeros, buffer = bytes(PIECE), bytearray(PIECE + 16)
    start = time.perf_counter()
    for _ in range(masks):
        encryptor = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        for _ in range(0, bytes_each, PIECE):
            encryptor.update_into(zeros, buffer)
    return time.perf_counter() - start


def quantising(vector: Any, quantiser: Quantiser) -> float:  # noqa: ANN401 - an array
    """Return the seconds of one pass of quantisation."""
    out = np.empty(len(vector) + quantiser.extra_words, dtype=quantiser.ring.dtype)
    start = time.perf_counter()
    quantise_into(out, vector, 1, quantiser, Seed(bytes(32)))
    return time.perf_counter() - start


def masks_of(kind: str, users: int) -> int:
    """Return how many masks a client adds: with its batch, with neighbours outside it, and one of its own."""
    if kind == "sealed open":
        return PRIVACY - 1
    every = users - 1 if kind.endswith("secagg") else sparse_neighbourhood(users, Parameters()).degree
    if kind.startswith("unsealed"):
        return every + 1
    return (PRIVACY - 1) + round(every * (users - PRIVACY) / (users - 1)) + 1


def own_parties(users: int, drops: int) -> dict[str, Party]:
    """Return everything that is measured at one size; a sealed pairwise sum has two batches at least."""
    parties: dict[str, Party] = {"unsealed secagg": Unsealed(users, "secagg")}
    parties["unsealed secagg+"] = Unsealed(users, "secagg+")
    if drops == 0 or users >= 3 * PRIVACY:
        parties["sealed secagg+"] = Sealed(users, "secagg+")
    parties["sealed open"] = Sealed(users, "open")
    return parties


def beside_flower(users: int, drops: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compare at the size of the paper's CNN; all are repeated, in turns."""
    arrays = [rng.normal(0, 0.1, PARAMETERS).astype(np.float32).clip(-1, 1) for _ in range(users)]
    parties = own_parties(users, drops)
    theirs: list[dict[str, float]] = []
    ours: dict[str, list[dict[str, float]]] = {kind: [] for kind in parties}
    for repeat in range(REPEATS):
        theirs.append(flower_peer.run_round(arrays, drops))
        for kind, party in parties.items():
            vectors = dict(zip(party.users, arrays, strict=True))
            lost = frozenset(party.users[:drops])
            _, spent = timed_round(party, repeat, vectors, lost)
            left = [user for user in party.users if user not in lost]
            ours[kind].append({
                "client_s": statistics.median(spent.clients[user] for user in left),
                "server_s": spent.server,
                "upload_bytes": max(spent.up.values()),
            })  # fmt: skip
    flower = {key: statistics.median(run[key] for run in theirs) for key in theirs[0]}
    rows: dict[str, Any] = {f"flower_{key}": value for key, value in flower.items()}
    for kind, runs in ours.items():
        own = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        quantiser = parties[kind].rules.quantiser
        width = quantiser.ring.dtype.itemsize * PARAMETERS
        aes = min(raw_keystream(masks_of(kind, users), width) for _ in range(REPEATS))
        quantise = min(quantising(arrays[0], quantiser) for _ in range(REPEATS))
        rows[kind] = {
            **own,
            "client_times_faster": flower["client_s"] / own["client_s"],
            "client_bar": CLIENT_BARS[kind],
            "client_over_aes_and_quantisation": own["client_s"] / (aes + quantise),
            "limit_bar": LIMIT_BAR,
            "server_times_faster": flower["server_s"] / own["server_s"],
            "server_bar": SERVER_BAR,
            "upload_bytes_per_parameter": own["upload_bytes"] / PARAMETERS,
        }
    return rows


def memory(rng: np.random.Generator) -> dict[str, float]:
    """Return how many vectors of floats a sealed `open` client holds beyond its update."""
    party = Sealed(2 * PRIVACY, "open")
    vector = rng.normal(0, 0.1, PARAMETERS).astype(np.float32)
    first = party.clients[party.users[0]]
    task = first.receive(party.round(0, PARAMETERS).start()[first.user])
    if not isinstance(task, Task):
        raise TypeError("a call gives a task")
    return {"client_extra_vectors": extra_megabytes(lambda: first.seal(task, vector)) / (4 * PARAMETERS / 1e6)}


def run() -> dict[str, object]:
    """Measure everything."""
    rng = np.random.default_rng(0)
    return {
        "what": f"{PARAMETERS} float32, T={PRIVACY}, one thread, words of 16 bits, and Flower 1.41's SecAgg+",
        **{
            f"{users} users, {drops} dropped": beside_flower(users, drops, rng)
            for users in (12, 24)
            for drops in (0, 2)
        },
        "memory": memory(rng),
    }
