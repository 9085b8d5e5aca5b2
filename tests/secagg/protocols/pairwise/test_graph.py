"""The graphs of pairwise rounds: symmetric, regular, decided by the seed alone, and with neighbours enough."""

import hashlib
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.secagg import Seed
from coterie.secagg.batch.charter import Parameters
from coterie.secagg.protocols.agreement.roster import (
    Graph,
    Neighbourhood,
    complete_neighbourhood,
    sparse_neighbourhood,
)

DEFAULT = Parameters()


def seed(number):
    """A seed for each number."""
    return Seed(hashlib.sha256(str(number).encode()).digest())


def sparse(users, number=0, parameters=DEFAULT):
    """A graph of SecAgg+."""
    return Graph(users, sparse_neighbourhood(users, parameters), seed(number))


@given(st.integers(2, 200), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_neighbours_are_mutual_and_equally_many(users, number):
    """Everyone has k others and itself, in ascending order, and whoever holds is held by."""
    graph = sparse(users, number)
    holders = [graph.holders(place) for place in range(users)]
    for place, held in enumerate(holders):
        assert held == tuple(sorted(set(held)))
        assert len(held) == graph.neighbourhood.degree + 1
        assert place in held
        assert all(place in holders[other] for other in held)
        neighbours = graph.neighbours(place)
        assert set(neighbours) == set(held) - {place}
        assert [graph.index(place, other) for other in neighbours] == list(range(len(neighbours)))


def test_few_users_hold_shares_of_all():
    """Where no smaller degree is enough, SecAgg+ is SecAgg, with its threshold; SecAgg always is complete."""
    for users in (2, 3, 5):
        assert sparse_neighbourhood(users, DEFAULT) == complete_neighbourhood(users, DEFAULT)
        assert sparse(users).holders(1) == tuple(range(users))
    assert complete_neighbourhood(500, DEFAULT) == Neighbourhood(499, 301)
    assert Graph(500, complete_neighbourhood(500, DEFAULT), seed(0)).holders(77) == tuple(range(500))
    assert not sparse(12).is_complete


def test_the_order_is_that_of_the_keystreams_words():
    """The slow twin: AES in counter mode by the library, words of 64 bits, sorted, and a window around each."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    users, key, graph = 100, seed(1), sparse(100, 1)
    stream = Cipher(algorithms.AES(key.reveal()), modes.CTR(bytes(16))).encryptor().update(bytes(8 * users))
    order = sorted(range(users), key=lambda place: int.from_bytes(stream[8 * place : 8 * place + 8], "little"))
    half = graph.neighbourhood.degree // 2
    for place in range(users):
        at = order.index(place)
        expected = sorted(order[(at + step) % users] for step in range(-half, half + 1))
        assert graph.holders(place) == tuple(expected)


def test_another_seed_gives_other_neighbours():
    """Neighbours are spread evenly over all users as seeds change."""
    counts = np.zeros(200)
    for number in range(300):
        counts[list(sparse(200, number).holders(7))] += 1
    assert counts[7] == 300
    others = np.delete(counts, 7)
    share = sparse_neighbourhood(200, DEFAULT).degree / 199
    assert abs(others - 300 * share).max() < 6 * np.sqrt(300 * share * (1 - share))


def tail(population, marked, drawn, numbers):
    """The probability of so many marked ones among those drawn, from the definition."""
    possible = [count for count in numbers if count <= drawn]
    ways = sum(comb(marked, count) * comb(population - marked, drawn - count) for count in possible)
    return Fraction(ways, comb(population, drawn))


def is_enough(users, parameters, degree, threshold):
    """Whether all three bounds hold."""
    colluding, lost = parameters.most_colluding(users), parameters.most_lost(users)
    open_to_colluders = users * tail(users - 1, colluding, degree, range(threshold, degree + 1))
    closed_to_all = users * tail(users - 1, users - lost, degree, range(threshold))
    gone = colluding + lost
    apart = Fraction(users * (users - 1), 2) * tail(users, gone, degree, [degree])
    return (
        open_to_colluders <= Fraction(1, 2**41),
        closed_to_all <= Fraction(1, 2**20),
        apart <= Fraction(1, 2**41),
    )


@pytest.mark.parametrize(
    ("users", "degree", "threshold"), [(60, 30, 13), (100, 48, 21), (300, 96, 46), (1000, 140, 67)]
)
def test_the_degree_is_enough_and_the_least(users, degree, threshold):
    """Exact fractions: the bounds hold for k and t', a lower t' or the next lower k breaks one of them."""
    assert sparse_neighbourhood(users, DEFAULT) == Neighbourhood(degree, threshold)
    assert is_enough(users, DEFAULT, degree, threshold) == (True, True, True)
    assert not is_enough(users, DEFAULT, degree, threshold - 1)[0]
    for fewer in range(2, degree, 2):
        assert not any(all(is_enough(users, DEFAULT, fewer, least)) for least in (threshold, threshold - 1)), fewer


def test_degrees_grow_slowly():
    """As users become many, k grows with their logarithm; a larger γ or δ needs more."""
    assert sparse_neighbourhood(10_000, DEFAULT) == Neighbourhood(182, 87)
    assert sparse_neighbourhood(65_535, DEFAULT).degree < 220
    more = sparse_neighbourhood(1000, Parameters(300, 300))
    assert more.degree > sparse_neighbourhood(1000, Parameters(200, 300)).degree
    assert sparse_neighbourhood(1000, Parameters(0, 0)).shares_needed == 2


@given(st.integers(60, 140), st.integers(0, 2**32), st.floats(0.05, 1))
@settings(max_examples=40, deadline=None)
def test_holders_are_counted_as_they_are(users, number, share):
    """Counting along the circle gives what counting each user's holders gives."""
    rng = np.random.default_rng(number)
    graph, present = sparse(users, number), np.flatnonzero(rng.random(users) < share)
    expected = [len(set(graph.holders(place)) & set(present.tolist())) for place in range(users)]
    assert graph.count_holders(present).tolist() == expected
    complete = Graph(users, complete_neighbourhood(users, DEFAULT), seed(number))
    assert complete.count_holders(present).tolist() == [len(present)] * users


@given(st.integers(60, 140), st.integers(0, 2**32), st.floats(0.02, 0.3), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_components_are_those_of_the_graph_with_groups_contracted(users, number, share, size):
    """The slow twin joins neighbours and members of a group one after the other, until nothing changes."""
    rng = np.random.default_rng(number)
    graph = Graph(users, Neighbourhood(4, 2), seed(number))
    present = np.flatnonzero(rng.random(users) < share)
    groups = rng.integers(0, max(len(present) // size, 1), len(present))
    names = {place: {place} for place in present.tolist()}

    def join(one, other):
        merged = names[one] | names[other]
        for place in merged:
            names[place] = merged

    for index, place in enumerate(present.tolist()):
        for other in set(graph.neighbours(place)) & names.keys():
            join(place, other)
        for later in np.flatnonzero(groups == groups[index]):
            join(place, int(present[later]))
    parts = graph.components(present, groups).tolist()
    found = {frozenset(p for p, part in zip(present.tolist(), parts, strict=True) if part == n) for n in parts}
    assert found == {frozenset(merged) for merged in names.values()}
    assert sorted(set(parts)) == list(range(len(found)))
