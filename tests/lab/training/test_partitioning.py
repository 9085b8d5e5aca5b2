"""Every way to spread a data set keeps its promises: sizes, labels, who shares what."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.training import dirichlet, dirichlet_mixes, dropout_by_label, iid, shards, shards_and_shared
from coterie.lab.training.data import DROPOUT_OF_LABEL

SEEDS = st.integers(0, 2**32)
LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60)
CONCENTRATIONS = st.sampled_from([1e-6, 0.01, 0.5, 5.0, 1e6])


def everyone(partition):
    """Every user's examples, sorted."""
    return sorted(partition.indices.tolist())


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), SEEDS)
def test_iid_deals_out_everything_evenly(examples, users, seed):
    """Every example has one user, sizes differ by one at most, and the seed decides."""
    users = min(examples, users)
    partition = iid(examples, users, np.random.default_rng(seed))
    assert everyone(partition) == list(range(examples))
    assert partition.sizes.max() - partition.sizes.min() <= 1
    assert partition == iid(examples, users, np.random.default_rng(seed))


def test_iid_users_see_every_label():
    """With MNIST's numbers each user's labels are near the average: a chi-square that chance explains."""
    labels = np.repeat(np.arange(10), 6000)
    counts = iid(60_000, 120, np.random.default_rng(0)).label_counts(labels, 10)
    assert (counts.sum(axis=1) == 500).all()
    statistic = ((counts - 50) ** 2 / 50).sum()
    assert abs(statistic - 119 * 9) < 6 * np.sqrt(2 * 119 * 9)


@settings(deadline=None)
@given(LABELS, st.integers(1, 60))
def test_shards_follow_the_labels(labels, users):
    """Read user after user the labels never fall, every example has one user, and sizes differ by one at most."""
    users = min(len(labels), users)
    partition = shards(labels, users)
    assert np.array(labels)[partition.indices].tolist() == sorted(labels)
    assert everyone(partition) == list(range(len(labels)))
    assert partition.sizes.max() - partition.sizes.min() <= 1


def test_shards_with_the_papers_numbers_have_one_label():
    """60 000 images, equally many of each of 10 digits, in 120 shards: 500 images of one digit each."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    counts = shards(labels, 120).shuffled(np.random.default_rng(1)).label_counts(labels, 10)
    assert sorted(counts.max(axis=1)) == [500] * 120


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 12), SEEDS)
def test_shared_examples_are_everyones_and_the_others_one_users(per_class, users, seed):
    """Equally many of each class are with all users; every other example is with exactly one."""
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(3), 9))
    partition = shards_and_shared(labels, users, per_class, np.random.default_rng(seed))
    owners = np.bincount(partition.indices, minlength=len(labels))
    shared = set(partition.of(0).tolist()).intersection(*(partition.of(user) for user in range(users)))
    if users > 1:
        assert sorted(labels[list(shared)]) == sorted(list(range(3)) * per_class)
    assert sorted(owners) == [1] * (27 - 3 * per_class) + [users] * (3 * per_class)
    assert all(len(set(part)) == len(part) for part in map(partition.of, range(users)))


def test_sharing_with_the_papers_numbers():
    """CIFAR-10: 200 shared, 20 per class, and 415 own examples for each of 120 users, 1245 for each of 40."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    for users, own in ((120, 415), (40, 1245)):
        counts = shards_and_shared(labels, users, 20, np.random.default_rng(0)).label_counts(labels, 10)
        assert (counts.sum(axis=1) == own + 200).all()
        assert (counts >= 20).all()
        assert ((counts > 20).sum(axis=1) <= 2).all()


def test_own_and_shared_examples_are_mixed():
    """Minibatches follow a user's order, so that the shared examples must not all come at its end."""
    labels = np.repeat(np.arange(10), 500)
    partition = shards_and_shared(labels, 12, 20, np.random.default_rng(0))
    majority = partition.label_counts(labels, 10).argmax(axis=1)
    for user in range(12):
        foreign = np.flatnonzero(labels[partition.of(user)] != majority[user])
        assert foreign[0] < len(partition.of(user)) / 4


@settings(deadline=None)
@given(LABELS, st.integers(1, 60), CONCENTRATIONS, SEEDS)
def test_dirichlet_deals_out_everything_and_forgets_nobody(labels, users, concentration, seed):
    """Every example has exactly one user and every user has one, however skewed; the seed decides."""
    users = min(len(labels), users)
    for spread in (dirichlet, dirichlet_mixes):
        partition = spread(labels, users, concentration, np.random.default_rng(seed))
        assert everyone(partition) == list(range(len(labels)))
        assert len(partition) == users
        assert partition.sizes.min() >= 1
        assert partition == spread(labels, users, concentration, np.random.default_rng(seed))


@settings(deadline=None)
@given(LABELS, st.integers(1, 60), CONCENTRATIONS, SEEDS)
def test_mixes_give_everyone_equally_much(labels, users, concentration, seed):
    """With a mix per user sizes differ by one at most."""
    sizes = dirichlet_mixes(labels, min(len(labels), users), concentration, np.random.default_rng(seed)).sizes
    assert sizes.max() - sizes.min() <= 1


def test_dirichlet_shares_have_the_distributions_variance():
    """A user's share of a class has mean 1/N and variance (1/N)(1 - 1/N)/(κN + 1), as Dir(κ, …, κ) has."""
    labels, users, concentration = np.repeat(np.arange(100), 1000), 20, 0.5
    rng = np.random.default_rng(0)
    shares = dirichlet(labels, users, concentration, rng).label_counts(labels, 100) / 1000
    expected = (1 / users) * (1 - 1 / users) / (concentration * users + 1)
    assert shares.mean() == pytest.approx(1 / users)
    assert shares.var() == pytest.approx(expected, rel=0.15)


def test_mixes_have_the_distributions_variance():
    """While stocks last, a class's share of a user has the variance (1/C)(1 - 1/C)/(κ + 1) of Dir(κπ)."""
    labels, classes, concentration = np.repeat(np.arange(4), 100_000), 4, 2.0
    rng = np.random.default_rng(0)
    partition = dirichlet_mixes(labels, 4000, concentration, rng)
    shares = partition.label_counts(labels, classes)[:1000] / 100
    sampling = (1 / classes) * (1 - 1 / classes)
    within = sampling * concentration / (concentration + 1) / 100  # of drawing 100 examples from a mix
    assert shares.var() == pytest.approx(sampling / (concentration + 1) + within, rel=0.1)


def test_concentration_goes_from_one_class_to_all():
    """A small κ leaves a user with few classes, a large one gives every user all of them alike."""
    labels = np.repeat(np.arange(10), 600)
    for spread in (dirichlet, dirichlet_mixes):
        few, many = (
            (spread(labels, 60, kappa, np.random.default_rng(0)).label_counts(labels, 10) > 0).sum(axis=1).mean()
            for kappa in (0.01, 1e6)
        )
        assert few < 3
        assert many > 9.5


def test_a_dirichlet_users_order_is_mixed():
    """Labels of a user do not come in blocks: minibatches follow this order."""
    labels = np.repeat(np.arange(10), 600)
    for spread in (dirichlet, dirichlet_mixes):
        own = labels[spread(labels, 2, 100.0, np.random.default_rng(0)).of(0)]
        assert (np.diff(own) != 0).mean() > 0.8


def test_dropout_goes_by_the_majority_label():
    """Each class has the authors' probability, and of equally frequent labels the lowest decides."""
    assert dropout_by_label(np.eye(10, dtype=int)).tolist() == list(DROPOUT_OF_LABEL)
    assert dropout_by_label([[0, 3, 3], [2, 1, 0]], dropout=[0.0, 0.5, 1.0]).tolist() == [0.5, 0.0]
    labels = np.repeat(np.arange(10), 5000)
    counts = shards_and_shared(labels, 120, 20, np.random.default_rng(0)).label_counts(labels, 10)
    assert dropout_by_label(counts)[[0, 119]].tolist() == [0.1, 0.5]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(5, 6, RNG), "5 examples are too few for 6 users"),
        (lambda: iid(5, 0, RNG), "the number of users is 0"),
        (lambda: shards([0, 1], 3), "2 examples are too few for 3 users"),
        (lambda: shards([0.5], 1), "labels must be integers"),
        (lambda: shards([[0], [1]], 1), "labels must be one-dimensional"),
        (lambda: shards_and_shared([0, 0, 1], 1, 2, RNG), "class 1 has 1; share fewer"),
        (lambda: shards_and_shared([0, 0, 1], 1, 0, RNG), "shared examples per class is 0"),
        (lambda: shards_and_shared([0, 1], 1, 1, RNG), "0 examples are too few for 1 users"),
        (lambda: dirichlet([0, 1], 3, 1.0, RNG), "2 examples are too few for 3 users"),
        (lambda: dirichlet([0, 1], 2, 0.0, RNG), "κ is 0.0; give a number from 1e-06 to 1e"),
        (lambda: dirichlet_mixes([0, 1], 2, float("nan"), RNG), "κ is nan"),
        (lambda: dirichlet_mixes([0, 1], 3, 1.0, RNG), "2 examples are too few for 3 users"),
        (lambda: dropout_by_label(np.eye(11, dtype=int)), r"\(11, 11\); give users × classes, with at most 10"),
        (lambda: dropout_by_label([1, 2]), r"shape \(2,\)"),
        (lambda: dropout_by_label([[1]], [1.5]), "number 0 is 1.5"),
    ],
)
def test_what_cannot_be_spread_is_refused(call, message):
    """Too few examples, labels that are none and impossible parameters are named."""
    with pytest.raises(UsageError, match=message):
        call()
