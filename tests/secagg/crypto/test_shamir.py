"""Shares of a secret: enough of them give it back, fewer say nothing, whatever their points."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie.errors import UsageError
from coterie.secagg import Seed
from coterie.secagg.crypto.shamir import (
    LIMBS,
    SHARE_BYTES,
    are_shares,
    combine_all,
    correct,
    lagrange,
    split,
)

P = 2**31 - 1
secrets = st.binary(min_size=32, max_size=32)


def joined(points, shares):
    """The one secret whose shares at these points are given."""
    return combine_all(points[np.newaxis], shares[np.newaxis])[0]


def slow_value(secret, coefficients, point):
    """The limbs of a share, from the definition, with Python's own integers."""
    number = int.from_bytes(secret, "little")
    limbs = [number // 2 ** (30 * index) % 2**30 for index in range(9)]
    return [
        (limb + sum(row[index] * point ** (len(coefficients) - at) for at, row in enumerate(coefficients))) % P
        for index, limb in enumerate(limbs)
    ]


@given(secrets, secrets, st.integers(2, 9), st.integers(0, 4), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_threshold_of_shares_give_the_secrets_back(one, other, threshold, more, seed):
    """Whichever shares are left, in whatever order, both secrets come back."""
    rng = np.random.default_rng(seed)
    points = rng.choice(np.arange(1, 2**16), threshold + more, replace=False)
    shares = split([one, other], threshold, points.tolist(), Seed(rng.bytes(32)))
    assert shares.dtype == np.uint32
    assert shares.shape == (threshold + more, 2, LIMBS)
    assert SHARE_BYTES == 36
    left = rng.permutation(threshold + more)[:threshold]
    assert joined(points[left], shares[left, 0]) == one
    assert joined(points[left], shares[left, 1]) == other


@given(secrets, st.integers(1, 6), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_shares_are_values_of_one_polynomial(secret, threshold, seed):
    """Every limb of every share is c_1·x^(t-1) + … + c_(t-1)·x + limb modulo p, with coefficients below p."""
    points = [1, 2, 3, 500, 65_535, *range(7, 7 + threshold)]
    shares = split([secret], threshold, points, Seed(seed.to_bytes(32, "little")))[:, 0]
    # Differences of the values at 1 … give the coefficients: here they are solved for exactly.
    for limb in range(LIMBS):
        values = dict(zip(points, shares[:, limb].tolist(), strict=True))
        chosen = points[:threshold]
        for point, value in values.items():
            total = 0
            for x in chosen:
                weight = Fraction(1)
                for y in chosen:
                    if y != x:
                        weight *= Fraction(point - y, x - y)
                total += values[x] * weight.numerator * pow(weight.denominator, -1, P)
            assert total % P == value < P


def test_the_keystream_gives_the_coefficients():
    """The slow twin with the keystream's words as coefficients gives the same shares."""
    from coterie.secagg.crypto.masking import Keystream
    from coterie.secagg.crypto.ring import PRIME_31

    secret, seed = bytes(range(224, 256)), Seed(bytes([5]) * 32)
    words = np.empty(4 * LIMBS, dtype=np.uint32)
    Keystream(seed, PRIME_31).words_into(words)
    shares = split([secret], 5, [1, 9, 300, 4000, 65_535], seed)[:, 0]
    coefficients = words.reshape(4, LIMBS).tolist()
    assert shares.tolist() == [slow_value(secret, coefficients, x) for x in (1, 9, 300, 4000, 65_535)]


def test_fewer_shares_than_the_threshold_are_uniform():
    """Of the least random secret, t - 1 shares have uniform limbs: one more would give it away."""
    counts = np.zeros(16)
    for number in range(2000):
        shares = split([bytes(32)], 3, [1, 2, 3], Seed(number.to_bytes(32, "big")))[:2, 0]
        counts += np.bincount((shares.ravel() >> 27).astype(int), minlength=16)
    assert chisquare(counts).pvalue > 1e-6


def test_too_few_shares_give_another_secret():
    """What t - 1 shares give is not the secret."""
    shares = split([bytes(range(32))], 4, [1, 2, 3, 4, 5], Seed(bytes(32)))[:, 0]
    for left in combinations(range(5), 3):
        assert joined(np.array(left) + 1, shares[list(left)]) != bytes(range(32))


def test_a_wrong_share_does_not_give_the_secret():
    """With one limb changed, another secret comes out, or none at all."""
    shares = split([bytes(range(32))], 3, [1, 2, 3], Seed(bytes(32)))[:, 0]
    found = set()
    for limb in range(LIMBS):
        for other in (0, 1, P - 1):
            changed = shares.copy()
            changed[1, limb] = other
            found.add(joined(np.array([1, 2, 3]), changed))
    assert bytes(range(32)) not in found
    assert None in found


@pytest.mark.parametrize("same", [True, False])
def test_many_secrets_at_once_are_those_one_by_one(same):
    """One call for many secrets gives what many calls give, with shared points or with points of their own."""
    rng = np.random.default_rng(3)
    points = np.array([rng.choice(np.arange(1, 500), 7, replace=False) for _ in range(20)])
    points = np.repeat(points[:1], 20, axis=0) if same else points
    wanted = [rng.bytes(32) for _ in range(20)]
    shares = np.array(
        [
            split([secret], 7, row.tolist(), Seed(rng.bytes(32)))[:, 0]
            for secret, row in zip(wanted, points, strict=True)
        ]
    )
    assert combine_all(points[:1] if same else points, shares) == wanted


@given(st.lists(st.integers(1, 2**16 - 1), min_size=1, max_size=12, unique=True))
@settings(max_examples=50, deadline=None)
def test_the_weights_are_lagranges(points):
    """λ_i = Π x_j / (x_j - x_i) modulo p, by exact fractions; they sum to 1."""
    found = lagrange(np.array([points]))[0].tolist()
    for x, weight in zip(points, found, strict=True):
        exact = Fraction(1)
        for y in points:
            if y != x:
                exact *= Fraction(y, y - x)
        assert weight == exact.numerator * pow(exact.denominator, -1, P) % P
    assert sum(found) % P == 1


@pytest.mark.parametrize(("threshold", "points"), [(3, [1, 2]), (0, [1, 2]), (1, [0, 1]), (1, [2**16]), (1, [])])
def test_what_cannot_be_shared_is_refused(threshold, points):
    """Fewer points than the threshold, no threshold, the point 0 where the secret lies, and points too large."""
    with pytest.raises(UsageError, match="shares cannot be asked for"):
        split([bytes(32)], threshold, points, Seed(bytes(32)))


def test_only_secrets_of_32_bytes_are_shared():
    """Another length is the caller's error; the message does not show the secret."""
    with pytest.raises(UsageError, match=r"has 32 bytes, not 31$"):
        split([b"s" * 31], 1, [1], Seed(bytes(32)))


@given(secrets, st.integers(2, 9), st.integers(0, 8), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_wrong_shares_are_corrected_up_to_half_of_those_to_spare(secret, threshold, more, seed):
    """Whichever shares are wrong, and in whichever limbs: the secret and their places come out."""
    rng = np.random.default_rng(seed)
    points = rng.choice(np.arange(1, 2**16), threshold + more, replace=False).tolist()
    shares = split([secret], threshold, points, Seed(rng.bytes(32)))[:, 0]
    wrong = sorted(rng.permutation(threshold + more)[: rng.integers(0, more // 2 + 1)].tolist())
    for place in wrong:
        limb = int(rng.integers(LIMBS))
        shares[place, limb] = (int(shares[place, limb]) + int(rng.integers(1, P))) % P
    assert correct(points, shares, threshold) == (secret, wrong)


def test_too_many_wrong_shares_give_nothing_rather_than_another_secret():
    """Random words are on no polynomial of this degree: nothing comes out."""
    rng = np.random.default_rng(0)
    shares = rng.integers(0, P, (9, LIMBS)).astype(np.uint32)
    assert correct(list(range(1, 10)), shares, 6) is None


def test_only_words_below_p_are_shares():
    """A word of p or more stands for no element of the field, and other lengths are no whole shares."""
    good = np.full(2 * LIMBS, P - 1, dtype="<u4")
    assert are_shares(good.tobytes())
    assert are_shares(b"")
    assert not are_shares(good.tobytes()[:-4])
    for place in (0, 2 * LIMBS - 1):
        bad = good.copy()
        bad[place] = P
        assert not are_shares(bad.tobytes())
