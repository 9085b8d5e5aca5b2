"""What a sealed round costs clients and server, for each inner protocol, with few and many users and losses."""

import gc
import multiprocessing
import os
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: what counts is one thread's time

import numpy as np
import scipy.sparse.csgraph  # noqa: F401 - else imported where it is used, and the first round pays for it
from rounds import Sealed, Spent, TimedRound, timed_round

from coterie.secagg import PROTOCOLS, RoundResult

LOSSES = (0.0, 0.1, 0.3)
SIZES = {12: (2, 100_000), 100: (10, 100_000), 1000: (10, 10_000)}
"""Users: T, so that a tenth and three tenths are whole batches or nearly, and the dimension."""
MANY, SAMPLE = 1000, 10
"""From so many users on only some of the clients verify signatures, and only these are timed (`TimedRound`)."""
REPEATS = 3
"""Rounds of which the least times count, as others may use the machine too; of many users there is one."""


def scaling(inner: str, users: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sealed rounds with each share of losses, which begin at the upload.

    Of many users the rounds are one up to there, and go on in copies of the process, whose first touch of a page
    of memory copies it: their servers look slower than they are.
    """
    privacy, dimension = SIZES[users]
    party = Sealed(users, inner, privacy=privacy)
    vector = np.random.default_rng(0).normal(0, 0.1, dimension).astype(np.float32).clip(-1, 1)
    vectors = dict.fromkeys(party.users, vector)
    sample = frozenset(party.users[-SAMPLE:]) if users >= MANY else None
    if sample is not None:
        timed = TimedRound(party, 0, vectors, sample=sample)
        for _ in range(PROTOCOLS[inner].upload_phase):
            timed.step(frozenset())
    for number, losses in enumerate(LOSSES):
        batches = max(round(losses * users / privacy), 1) if losses else 0
        lost = frozenset(party.users[: batches * privacy])
        size = {"users": users, "dimension": dimension, "privacy": privacy, "lost": len(lost)}
        if sample is None:
            row = _row(*timed_round(party, number, vectors, lost), party.users, lost)
        else:
            row = _in_fork(timed, lost, sample)
        yield f"{inner}, {users} users, {losses:.0%} lost", {**size, **row}


def _in_fork(timed: TimedRound, lost: frozenset[str], sample: frozenset[str]) -> dict[str, Any]:
    """Run the rest of a round in a copy of this process, so that it can be run again with other losses."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    gc.freeze()  # a collection in the copy would touch, and so copy, everything
    process = context.Process(target=_rest, args=(timed, lost, sample, theirs))
    process.start()
    theirs.close()
    result = ours.recv()
    process.join()
    return result


def _rest(timed: TimedRound, lost: frozenset[str], sample: frozenset[str], answer: Any) -> None:  # noqa: ANN401
    while timed.outgoing:
        timed.step(lost)
    answer.send(_row(*timed.finish(), sample, lost))


def _row(result: RoundResult, spent: Spent, users: Iterable[str], lost: frozenset[str]) -> dict[str, Any]:
    left = [user for user in users if user not in lost]
    return {
        "included": sum(len(part.users) for part in result.learned),
        "client_s": statistics.median(spent.clients[user] for user in left),
        "server_s": spent.server,
        "client_bytes_up": statistics.median(spent.up[user] for user in left),
        "client_bytes_down": statistics.median(spent.down[user] for user in left),
        "messages": spent.messages,
    }


def least(inner: str, users: int) -> dict[str, dict[str, Any]]:
    """Return what the rounds of one protocol and size took, at least."""
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(1 if users >= MANY else REPEATS):
        for name, row in scaling(inner, users):
            times = {key: min(row[key], rows.get(name, row)[key]) for key in ("client_s", "server_s")}
            rows[name] = {**row, **times}
    return rows


def run() -> dict[str, object]:
    """Measure every protocol, size and share of losses."""
    return {
        "what": "sealed rounds of float32, processor time on one thread, whole batches lost at upload",
        **{name: row for users in SIZES for inner in PROTOCOLS for name, row in least(inner, users).items()},
    }
