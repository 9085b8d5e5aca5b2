"""Slow twins of the fast kernels, shaped like the definitions; tests compare the two."""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, count

import flint
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# --- audit: the strong privacy level (eq. def_privacy) ------------------------------------------------


def strong_level_by_definition(matrix: list[list[int]]) -> int:
    """The largest T so that Pᵀz, for every z, is a sum over disjoint groups of ≥ T users, a coefficient each.

    For one z the best grouping puts all users with the same non-zero coefficient together, so T is the least
    such count over all z with Pᵀz ≠ 0, and N if there is none. The z are infinitely many, but what counts is
    only which coefficients are equal and which are zero. Each such pattern makes a subspace of z; of every
    subspace we take one point that has no equality beyond those of the whole subspace. All is exact.
    """
    users = len(matrix[0])
    columns = list(zip(*matrix, strict=True))
    level = users
    for pattern in _partitions(users + 1):  # the last block's user, number `users`, stands for zero
        coefficients = [*columns, (0,) * len(matrix)]
        equations = [
            [a - b for a, b in zip(coefficients[block[0]], coefficients[user], strict=True)]
            for block in pattern
            for user in block[1:]
        ]
        z = _generic_solution(equations, len(matrix))
        combined = [sum(p * weight for p, weight in zip(column, z, strict=True)) for column in columns]
        groups = Counter(value for value in combined if value != 0)
        level = min([level, *groups.values()])
    return level


def _partitions(count: int) -> Iterator[list[list[int]]]:
    """All ways to put 0 … count - 1 into blocks."""
    if count == 0:
        yield []
        return
    last = count - 1
    for smaller in _partitions(last):
        yield [*smaller, [last]]
        for index, block in enumerate(smaller):
            yield [*smaller[:index], [*block, last], *smaller[index + 1 :]]


def _generic_solution(equations: list[list[int]], unknowns: int) -> list[int]:
    """A solution z at which a 0/1 form, or the difference of two, vanishes only if it does on all solutions.

    On z = Σ_k B^k b_k, with the b_k a basis of integers, such a form is a polynomial in B. Its coefficients
    are far below B in size, so it vanishes only as a whole. (Basis entries are minors of a matrix of at most
    5 columns with entries in -1, 0, 1: by Hadamard at most 5^(5/2) < 56, so the forms are at most 280.)
    """
    if not equations:
        basis = [[int(row == column) for row in range(unknowns)] for column in range(unknowns)]
    else:
        solutions, nullity = flint.fmpz_mat(equations).nullspace()
        basis = [[int(solutions[row, column]) for row in range(unknowns)] for column in range(nullity)]
    assert unknowns <= 5
    assert all(abs(entry) <= 3125 for vector in basis for entry in vector)
    base = 10**6
    return [sum(base**k * vector[row] for k, vector in enumerate(basis)) for row in range(unknowns)]


# --- selection: Algorithms 1 and 2, as the paper writes them -------------------------------------------------


def algorithm_1(users, per_round, privacy):
    """Write out the family B, row by row and entry by entry."""
    groups = [range(start, start + privacy) for start in range(0, users, privacy)]
    unions = [
        {user for group in chosen for user in group} for chosen in combinations(groups, per_round // privacy)
    ]
    family = np.zeros((len(unions), users), dtype=np.uint8)
    for i, union in enumerate(unions):
        for j in range(users):
            if j in union:
                family[i, j] = 1
    return family


def available_rows(family, available):
    """Return the rows of B whose users are all available (the matrix B^(t) of Algorithm 2)."""
    return [row for row in family if all(available[user] for user in np.flatnonzero(row))]


def choose_row(family, available, counts, rng):
    """Choose as the authors' code does: uniformly among the available rows of least total frequency."""
    rows = available_rows(family, available)
    if not rows:
        return None
    totals = [counts[row == 1].sum() for row in rows]
    return rows[rng.choice([i for i, total in enumerate(totals) if total == min(totals)])]


def algorithm_2(family, available, counts, privacy, reading):
    """Return the probability of every cohort that a reading of Algorithm 2 can choose."""
    rows = [tuple(np.flatnonzero(row).tolist()) for row in available_rows(family, available)]
    if reading == "uniform":
        return {row: 1 / len(rows) for row in rows}
    if reading == "least_served":
        totals = {row: sum(counts[user] for user in row) for row in rows}
        least = [row for row in rows if totals[row] == min(totals.values())]
        return {row: 1 / len(least) for row in least}
    # The text: l_min is a user of an available batch; of several such batches each is taken alike.
    served = {user // privacy: counts[user] for row in rows for user in row}
    least = [batch for batch, count in served.items() if count == min(served.values())]
    chances = dict.fromkeys(rows, 0.0)
    for batch in least:
        including = [row for row in rows if batch * privacy in row]
        for row in including:
            chances[row] += 1 / len(least) / len(including)
    return {row: chance for row, chance in chances.items() if chance > 0}


def maximal_unions(sizes, per_round):
    """Return all sets of batches that hold at most K users and to which no batch can be added."""
    batches = range(len(sizes))
    rows = [row for count in range(1, len(sizes) + 1) for row in combinations(batches, count)]
    rows = [row for row in rows if sum(sizes[b] for b in row) <= per_round]
    fits = set(rows)
    return [row for row in rows if not any(tuple(sorted({*row, b})) in fits for b in batches if b not in row)]


# --- secagg: words and masks, one number at a time (docs/protocol.md §1 and §3) -----------------------------


def exact_word(value, weight, quantiser):
    """Return y = w·(x + c)/s for the clipped x, as a fraction; its floor or the next whole number is sent."""
    clip = Fraction(quantiser.clip)
    clipped = min(max(Fraction(float(value)), -clip), clip)
    return weight * (clipped + clip) * (quantiser.levels - 1) / (2 * clip)


def possible_words(value, weight, quantiser, uniform, slack):
    """Return the words ⌊y + u⌋ that may come out for a given u, if y is only known up to a slack."""
    word = exact_word(value, weight, quantiser)
    around = (math.floor(word + uniform - slack), math.floor(word + uniform + slack))
    return {min(max(each, 0), weight * (quantiser.levels - 1)) for each in around}


def rounding_places(weight, quantiser):
    """Return k: how many random bits decide about a word, so that a float64 holds the word and them."""
    bits = 16 if quantiser.ring.modulus == 2**16 else 32
    return min(bits, 52 - (weight * (quantiser.levels - 1)).bit_length())


def uniform_of(word, weight, quantiser):
    """Return the u in [0, 1) that a word of the rounding keystream stands for: its first k bits.

    Where w·(levels - 1) is even the word is read with a sign, so that the middle of its range stands for u = 0.
    """
    bits = 16 if quantiser.ring.modulus == 2**16 else 32
    if weight * (quantiser.levels - 1) % 2 == 0:
        word = (word + 2 ** (bits - 1)) % 2**bits
    places = rounding_places(weight, quantiser)
    return Fraction(word >> (bits - places), 2**places)


def vectors_by_definition(values, weight, quantiser, key):
    """Yield for each word of the vector of §1 the set of words that it may be: one, or two next to each other."""
    words = raw_keystream(key, 2 if quantiser.ring.modulus == 2**16 else 4)
    finite = all(math.isfinite(value) for value in values)
    slack = Fraction(4, 2 ** rounding_places(weight, quantiser))
    for value in values:
        uniform = uniform_of(next(words), weight, quantiser)
        yield possible_words(value if finite else 0.0, weight, quantiser, uniform, slack)
    yield {weight}
    yield from [{1}] * (4 if quantiser.ring.modulus == 2**16 else 2)


def raw_keystream(key, width):
    """Yield AES of the counters 0, 1, 2, … in little-endian words of so many bytes."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - counter mode by hand
    for counter in count():
        block = encryptor.update(counter.to_bytes(16, "big"))
        for start in range(0, 16, width):
            yield int.from_bytes(block[start : start + width], "little")


def keystream_by_blocks(key, modulus):
    """Yield the words of a mask; for the prime 31 bits of each, unless they are q itself."""
    for word in raw_keystream(key, 2 if modulus == 2**16 else 4):
        cut = word % 2**31 if modulus == 2**31 - 1 else word
        if cut != modulus:
            yield cut


def masked(words, masks, modulus):
    """Return the words with each keystream (key, sign) added or subtracted, modulo q."""
    streams = [(keystream_by_blocks(key, modulus), sign) for key, sign in masks]
    return [(word + sum(sign * next(stream) for stream, sign in streams)) % modulus for word in words]


# --- secagg: coded masks, number by number (docs/protocol.md §5) ---------------------------------------


def interpolated(points, values, at, modulus=2**31 - 1):
    """Return the value at one point of the polynomial through these points, by Lagrange's formula."""
    total = 0
    for point, value in zip(points, values, strict=True):
        above = math.prod(at - other for other in points if other != point)
        below = math.prod(point - other for other in points if other != point)
        total += value * above * pow(below, -1, modulus)
    return total % modulus


def coded_evaluations(mask, code, noise):
    """Return every user's evaluation of a mask: at U + 1 + j, of the polynomials through its pieces at 1 … U."""
    length = -(-len(mask) // code.pieces)
    padded = [*mask.tolist(), *[0] * (length * code.pieces - len(mask))]
    stream = keystream_by_blocks(noise.reveal(), 2**31 - 1)
    rows = [padded[start : start + length] for start in range(0, len(padded), length)]
    rows += [[next(stream) for _ in range(length)] for _ in range(code.privacy)]
    points = list(range(1, code.needed + 1))
    return [
        [interpolated(points, [row[place] for row in rows], code.needed + 1 + user) for place in range(length)]
        for user in range(code.users)
    ]
