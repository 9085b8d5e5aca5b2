"""Rounds that are over stay small: a coordinator remembers some of them, for messages that come late."""

import gc

import numpy as np
import pytest

from coterie.errors import PeerError, UsageError
from coterie.secagg import PROTOCOLS, run_round, sealed_round
from support.secagg.batches import Batches, quantiser, terms

LARGE = 20_000
"""Bytes of the model in the terms: more than everything that may stay."""


def held(thing):
    """How many bytes are reachable in arrays and byte strings."""
    seen, todo, total = set(), [thing], 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen.add(id(each))
        if isinstance(each, bytes | bytearray | np.ndarray | memoryview):
            total += memoryview(each).nbytes
        todo += gc.get_referents(each)
    return total


@pytest.mark.parametrize("inner", ["open", "secagg", "secagg+", "lightsecagg"])
def test_a_round_that_is_over_holds_no_vectors_and_no_model(inner):
    """What it could open is still known; it is finished once, and refuses and counts whatever comes late."""
    batches = Batches(
        3, 2, inner=inner, common={"quantiser": quantiser(cohort=64, ring=PROTOCOLS[inner].rings[-1])}
    )
    round_terms = terms(model=bytes(LARGE), min_included=1 if inner == "open" else 4)
    server = sealed_round(batches.charters, 0, round_terms)
    assert held(server) > 3 * LARGE
    run_round(server, batches.clients, batches.train)
    learned = server.exposure()
    assert {user for part in learned.learned for user in part} == set(batches.clients)
    assert held(server) < LARGE
    with pytest.raises(UsageError, match="is over; a round is finished once"):
        server.finish()
    with pytest.raises(PeerError):
        server.receive(next(iter(batches.clients)), b"late")
    assert server.exposure() == learned
