"""The graphs of pairwise rounds: who holds whose shares is symmetric, regular, and decided by the seed alone."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from coterie.secagg import Seed
from coterie.secagg.protocols.pairwise.graph import Circle, Complete, degree
from coterie.secagg.protocols.pairwise.roster import least_of


def seed(number):
    """A seed for each number."""
    return Seed(hashlib.sha256(str(number).encode()).digest())


@given(st.integers(2, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_neighbours_are_mutual_and_equally_many(users, number):
    """Everyone has `degree` others and itself, in ascending order, and whoever holds is held by."""
    graph = Circle(users, seed(number))
    holders = [graph.holders(place) for place in range(users)]
    for place, held in enumerate(holders):
        assert held == tuple(sorted(set(held)))
        assert len(held) == degree(users) + 1
        assert place in held
        assert all(place in holders[other] for other in held)


def test_few_users_hold_shares_of_all():
    """Below 60 users SecAgg+ is SecAgg; SecAgg always is complete."""
    for users in (2, 12, 59):
        assert Circle(users, seed(0)).holders(1) == Complete(users).holders(1) == tuple(range(users))
    assert Complete(500).holders(77) == tuple(range(500))
    assert len(Circle(500, seed(0)).holders(77)) == 65 - 1 + degree(500) - 63


def test_the_order_is_that_of_the_keystreams_words():
    """The slow twin: AES in counter mode by the library, words of 64 bits, sorted, and a window around each."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    users, key = 100, seed(1)
    stream = Cipher(algorithms.AES(key.reveal()), modes.CTR(bytes(16))).encryptor().update(bytes(8 * users))
    order = sorted(range(users), key=lambda place: int.from_bytes(stream[8 * place : 8 * place + 8], "little"))
    half = degree(users) // 2
    for place in range(users):
        at = order.index(place)
        expected = sorted(order[(at + step) % users] for step in range(-half, half + 1))
        assert Circle(users, key).holders(place) == tuple(expected)


def test_another_seed_gives_other_neighbours():
    """Neighbours are spread evenly over all users as seeds change."""
    counts = np.zeros(200)
    for number in range(300):
        counts[list(Circle(200, seed(number)).holders(7))] += 1
    assert counts[7] == 300
    others = np.delete(counts, 7)
    share = degree(200) / 199
    assert abs(others - 300 * share).max() < 6 * np.sqrt(300 * share * (1 - share))


@pytest.mark.parametrize("users", [60, 100, 300, 1000, 10_000])
def test_the_degree_is_enough(users):
    """A third lost or colluding leave the rest connected, and a fifth colluding open nobody, but for 2^-40.

    If a tenth is lost after sharing, all secrets can be opened but in one round of a hundred.
    """
    k = degree(users)
    assert k % 2 == 0
    assert users * (1 / 3) ** (k // 2) <= 2**-40 < users * (1 / 3) ** (k // 2 - 1)
    needed = least_of(k + 1)
    assert users * hypergeom(users - 1, users // 5, k).sf(needed - 1) <= 2**-30
    assert users * binom(k, 0.1).sf(k + 1 - needed) <= 0.01 * users / 1000 + 0.01
