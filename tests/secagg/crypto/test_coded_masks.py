"""Coded masks: any U evaluations give a mask back, t of them say nothing, and wrong ones are corrected."""

import numpy as np
import pytest
from flint import nmod_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie import UsageError
from coterie.errors import TooFewUsersError
from coterie.secagg import Parameters, Seed
from coterie.secagg.crypto.coded_masks import Code, lagrange_matrix, multiply
from coterie.secagg.protocols.lightsecagg import code_for
from reference import coded_evaluations, interpolated

P = 2**31 - 1


@st.composite
def codes(draw):
    """Any code that there can be for a few users."""
    users = draw(st.integers(1, 12))
    needed = draw(st.integers(1, users))
    return Code(users, draw(st.integers(0, needed - 1)), needed)


def words(seed, *shape):
    """Uniform numbers of the field."""
    return np.random.default_rng(seed).integers(0, P, shape).astype(np.uint32)


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**32))
def test_products_are_exact(rows, inner, columns, seed):
    """The product of floats gives what integers of any size give."""
    left, right = words(seed, rows, inner), words(seed + 1, inner, columns)
    expected = (left.astype(object) @ right.astype(object)) % P
    product = multiply(left, right)
    assert product.dtype == np.uint32
    assert (product == expected).all()


def test_the_largest_numbers_do_not_overflow():
    """A long product of the largest numbers is still exact."""
    left, right = np.full((1, 4000), P - 1, dtype=np.uint32), np.full((4000, 1), P - 1, dtype=np.uint32)
    assert multiply(left, right)[0, 0] == 4000 % P


@settings(max_examples=60)
@given(codes(), st.integers(1, 25), st.integers(0, 2**32))
def test_any_needed_evaluations_decode_the_sum_of_masks(code, size, seed):
    """Whichever holders are left, U of them are enough for the sum of several users' masks."""
    masks = words(seed, 3, size)
    shares = [code.encode(mask, Seed.generate()) for mask in masks]
    sums = (np.sum(shares, axis=0, dtype=np.int64) % P).astype(np.uint32)
    holders = np.sort(np.random.default_rng(seed).permutation(code.users)[: code.needed]).tolist()
    decoded = code.decode(holders, sums[holders], size, Seed.generate())
    assert decoded.tolist() == (masks.sum(axis=0, dtype=np.int64) % P).tolist()


@settings(max_examples=40)
@given(codes(), st.integers(1, 10), st.integers(0, 2**32))
def test_evaluations_are_those_of_the_slow_twin(code, size, seed):
    """Encoding agrees with evaluating Lagrange's polynomial number by number."""
    mask, noise = words(seed, size), Seed(seed.to_bytes(32, "little"))
    assert code.encode(mask, noise).tolist() == coded_evaluations(mask, code, noise)


@settings(max_examples=80)
@given(st.integers(4, 14), st.integers(1, 9), st.integers(0, 2**32), st.data())
def test_wrong_sums_are_corrected_as_far_as_they_can_be(users, size, seed, data):
    """With e wrong sums among U + 2e the right mask comes out, wherever the wrong ones are."""
    needed = data.draw(st.integers(1, users - 2))
    code = Code(users, data.draw(st.integers(0, needed - 1)), needed)
    errors = data.draw(st.integers(0, (users - needed) // 2))
    mask = words(seed, size)
    sums = code.encode(mask, Seed.generate())
    for row in data.draw(st.permutations(range(users)))[:errors]:
        sums[row] = (sums[row].astype(np.int64) + 1 + words(seed + row, sums.shape[1]) % (P - 1)) % P
    assert code.decode(range(users), sums, size, Seed.generate()).tolist() == mask.tolist()


def test_too_many_wrong_sums_give_none():
    """Two wrong sums where one can be corrected end the round; a wrong mask never comes out."""
    code = Code(8, 2, 5)
    sums = code.encode(words(1, 40), Seed.generate())
    sums[0], sums[5] = words(2, sums.shape[1]), words(3, sums.shape[1])
    with pytest.raises(TooFewUsersError, match="1 wrong ones can be corrected"):
        code.decode(range(8), sums, 40, Seed.generate())


def test_too_few_sums_give_none():
    """One evaluation fewer than U decodes nothing."""
    code = Code(8, 2, 5)
    sums = code.encode(words(1, 40), Seed.generate())
    with pytest.raises(TooFewUsersError, match="4 sums of shares came; 5 are needed"):
        code.decode(range(4), sums[:4], 40, Seed.generate())


def test_what_colluders_hold_is_uniform_whatever_the_mask():
    """The joint values of t evaluations are uniform: here of two, for the mask zero."""
    code = Code(4, 2, 3)
    pairs = np.concatenate([code.encode(np.zeros(2000, np.uint32), Seed.generate())[:2] for _ in range(4)], axis=1)
    high = pairs >> 28  # eight cells each
    cells = np.bincount(high[0] * 8 + high[1], minlength=64)
    assert chisquare(cells).pvalue > 1e-6


def test_beyond_t_evaluations_leak():
    """It is ramp sharing: t + 1 evaluations show a linear relation of a mask's pieces; so agree first."""
    code = Code(4, 1, 3)
    mask = words(5, 2)
    shares = code.encode(mask, Seed.generate()).astype(object)
    generator = lagrange_matrix(np.arange(1, 4), code.points(range(2))).astype(object)
    # Eliminate the one noise piece between two evaluations: what is left depends on the mask alone.
    shown = (shares[0, 0] * generator[1, 2] - shares[1, 0] * generator[0, 2]) % P
    factors = [(generator[0, k] * generator[1, 2] - generator[1, k] * generator[0, 2]) % P for k in range(2)]
    assert shown == sum(int(factor) * int(piece) for factor, piece in zip(factors, mask, strict=True)) % P


@given(st.integers(2, 12) | st.integers(2, 2000), st.integers(0, 999), st.integers(0, 499))
def test_the_code_of_a_roster_stands_its_losses(users, colluders, losses):
    """t is ⌊γn⌋ and at least 1, U is above it, and U + 2e is at most what is left after ⌊δn⌋ losses."""
    parameters = Parameters(min(colluders, 999 - 2 * losses), losses)
    code = code_for(users, parameters)
    assert code.privacy == max(1, parameters.most_colluding(users)) < code.needed
    errors, rest = divmod(users - parameters.most_lost(users) - code.needed, 2)
    assert rest == 0
    assert 0 <= errors <= max(1, users // 20)


@pytest.mark.parametrize(("users", "privacy", "needed"), [(5, 3, 3), (5, 4, 3), (5, 0, 6), (5, 0, 0)])
def test_a_code_that_cannot_be_is_refused(users, privacy, needed):
    """U must be above t and at most n."""
    with pytest.raises(UsageError, match="U must be above t"):
        Code(users, privacy, needed)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32))
def test_lagrange_matrices_interpolate(sources, targets, seed):
    """The matrix gives the values of the one polynomial through the sources."""
    chance = np.random.default_rng(seed)
    points = chance.permutation(50)[: sources + targets] + 1
    values = words(seed, sources)
    matrix = lagrange_matrix(points[:sources].astype(np.int64), points[sources:].astype(np.int64))
    expected = [interpolated(points[:sources].tolist(), values.tolist(), int(point)) for point in points[sources:]]
    assert multiply(matrix, values[:, np.newaxis])[:, 0].tolist() == expected


def test_one_user_alone_has_no_code():
    """U is above t, and t at least 1: a roster of one cannot hide its mask from itself."""
    with pytest.raises(UsageError, match="U must be above t"):
        code_for(1, Parameters())


def observed_combinations(code, honest, colluders):
    """What colluders and the server see of honest users' masks and noise in a round, as rows over the field.

    Columns are the pieces of every honest user's mask and its noise, or of the noise alone. Rows are the
    colluders' evaluations of each user, and every holder's evaluation of the sum of all users.
    """
    generator = lagrange_matrix(np.arange(1, code.needed + 1), code.points(range(code.users))).tolist()
    rows = []
    for user in range(honest):
        for holder in colluders:
            row = [[0] * code.needed for _ in range(honest)]
            row[user] = generator[holder]
            rows.append(row)
    rows += [[generator[holder]] * honest for holder in range(code.users)]
    noise = nmod_mat([[entry for user in row for entry in user[code.pieces :]] for row in rows], P)
    return noise, nmod_mat([[entry for user in row for entry in user] for row in rows], P)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 14), st.integers(2, 4), st.integers(0, 2**32), st.sampled_from([(200, 300), (399, 300), (0, 0)])
)
def test_of_masks_a_round_shows_only_their_sum_to_t_colluders(users, honest, seed, shares):
    """Every combination of what t colluders and the server see that is free of noise is one of the masks' sum.

    The noise-free combinations have rank(all) - rank(noise) dimensions; those of the sum are U - t of them.
    """
    code = code_for(users, Parameters(*shares))
    colluders = np.random.default_rng(seed).permutation(users)[: code.privacy].tolist()
    noise, everything = observed_combinations(code, honest, colluders)
    assert everything.rank() - noise.rank() == code.pieces
    if code.privacy < code.needed - 1:  # one colluder more, and single masks show
        noise, everything = observed_combinations(code, honest, np.arange(code.privacy + 1).tolist())
        assert everything.rank() - noise.rank() > code.pieces
