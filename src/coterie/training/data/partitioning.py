"""Ways to spread a data set over users: the paper's settings, each a pure function of labels and chance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import UsageError
from coterie.training.data.partition import Partition
from coterie.values import FloatArray, IntArray
from coterie.values.arrays import frozen_integers
from coterie.values.checks import check_count, check_probabilities

DROPOUT_OF_LABEL = (0.1, 0.15, 0.2, 0.25, 0.3, 0.3, 0.35, 0.4, 0.45, 0.5)
"""The dropout of a user of class 0 … 9 in the authors' runs where availability goes with the data."""

_LEAST_CONCENTRATION, _LARGEST_CONCENTRATION = 1e-6, 1e6  # beyond, floating point has nothing to tell apart
_NEGLIGIBLE = 1e-12


def iid(examples: int, users: int, rng: np.random.Generator) -> Partition:
    """Shuffle the examples and deal them out; sizes differ by one at most (the paper's "IID setting").

    >>> iid(60_000, 120, np.random.default_rng(0))
    Partition(120 users with 500 of 60000 examples)
    >>> iid(50_000, 120, np.random.default_rng(0))
    Partition(120 users with 416 to 417 of 50000 examples)
    """
    _check_enough(examples, users)
    return Partition(examples, rng.permutation(examples), _even_starts(examples, users))


def shards(labels: ArrayLike, users: int) -> Partition:
    """Sort the examples by label and cut them into one shard per user: user 0 has the lowest labels.

    A user has one label, or two where a cut does not fall between classes. Neighbours have like labels, and so
    have batches of consecutive users; `Partition.shuffled` hands the shards out at random.

    >>> shards([1, 0, 1, 0], users=2).label_counts([1, 0, 1, 0], classes=2).tolist()
    [[2, 0], [0, 2]]
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    return Partition(len(labels), np.argsort(labels, kind="stable"), _even_starts(len(labels), users))


def shards_and_shared(labels: ArrayLike, users: int, shared_per_class: int, rng: np.random.Generator) -> Partition:
    """Draw a set that all users share, equally many of each class, and give each user one shard of the rest too.

    A user's shard and the shared examples are mixed, in an order that stays. For CIFAR-10 the paper shares 20
    per class: 200 shared and 415 own examples for each of 120 users.

    >>> labels = np.repeat(np.arange(10), 5000)
    >>> shards_and_shared(labels, users=120, shared_per_class=20, rng=np.random.default_rng(0))
    Partition(120 users with 615 of 50000 examples)
    """
    labels = _labels(labels)
    check_count(shared_per_class, "the number of shared examples per class")
    classes, counts = np.unique(labels, return_counts=True)
    short = np.flatnonzero(counts < shared_per_class)
    if len(short):
        raise UsageError(
            f"{shared_per_class} examples of each class cannot be shared: class {classes[short[0]]} has "
            f"{counts[short[0]]}; share fewer"
        )
    shared = np.concatenate(
        [rng.choice(np.flatnonzero(labels == class_), shared_per_class, replace=False) for class_ in classes]
    )
    own = np.setdiff1d(np.arange(len(labels)), shared)
    _check_enough(len(own), users)
    own = own[np.argsort(labels[own], kind="stable")]
    starts = _even_starts(len(own), users)
    return Partition.from_users(
        len(labels), [rng.permutation(np.concatenate((part, shared))) for part in np.split(own, starts[1:-1])]
    )


def dirichlet(labels: ArrayLike, users: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Split each class over the users in proportions drawn from Dir(κ, …, κ), one κ per user.

    Every example is dealt out, so users have different amounts of data; a user that got nothing takes one
    example from the user with the most. κ → ∞ gives every user the same mix, κ → 0 a class to one user. The order
    of a user's examples is random.

    >>> labels = np.repeat(np.arange(10), 100)
    >>> dirichlet(labels, users=20, concentration=0.5, rng=np.random.default_rng(0))
    Partition(20 users with 17 to 114 of 1000 examples)
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    _check_concentration(concentration)
    owners = np.empty(len(labels), dtype=np.int64)
    for class_ in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == class_))
        shares = rng.dirichlet(np.full(users, concentration))
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        owners[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    sizes = np.bincount(owners, minlength=users)
    for user in np.flatnonzero(sizes == 0):
        richest = int(sizes.argmax())
        owners[rng.choice(np.flatnonzero(owners == richest))] = user
        sizes[user], sizes[richest] = 1, sizes[richest] - 1
    order = rng.permutation(len(labels))
    return Partition(
        len(labels), order[np.argsort(owners[order], kind="stable")], np.concatenate(([0], np.cumsum(sizes)))
    )


def dirichlet_mixes(labels: ArrayLike, users: int, concentration: float, rng: np.random.Generator) -> Partition:
    """Give each user equally much data in a mix of classes q_i ~ Dir(κ π), π being the classes' shares of all.

    This is the paper's text to the letter, and far more skewed than `dirichlet` at the same κ: with C classes a
    class's parameter is about κ/C. Users choose in turn and examples are handed out once; a user whose classes
    have run out draws another mix, of the classes that are left.

    >>> labels = np.repeat(np.arange(10), 100)
    >>> dirichlet_mixes(labels, users=20, concentration=0.5, rng=np.random.default_rng(0))
    Partition(20 users with 50 of 1000 examples)
    """
    labels = _labels(labels)
    _check_enough(len(labels), users)
    _check_concentration(concentration)
    classes, counts = np.unique(labels, return_counts=True)
    pools = [rng.permutation(np.flatnonzero(labels == class_)) for class_ in classes]
    left, parts = counts.copy(), []
    for size in np.diff(_even_starts(len(labels), users)):
        taken = np.zeros_like(left)
        mix = np.zeros(len(classes))
        while (missing := size - taken.sum()) > 0:
            stocked = left > taken
            mix = mix * stocked
            if mix.sum() < _NEGLIGIBLE:
                mix[stocked] = rng.dirichlet(concentration * counts[stocked] / len(labels))
            taken += np.minimum(rng.multinomial(missing, mix / mix.sum()), left - taken)
        part = [pool[rest - take : rest] for pool, rest, take in zip(pools, left, taken, strict=True)]
        parts.append(rng.permutation(np.concatenate(part)))
        left -= taken
    return Partition.from_users(len(labels), parts)


def dropout_by_label(label_counts: ArrayLike, dropout: Sequence[float] = DROPOUT_OF_LABEL) -> FloatArray:
    """Return each user's dropout probability: that of the label it has most of (of equals, the lowest).

    `label_counts` is users × classes, as `Partition.label_counts` gives it.

    >>> dropout_by_label([[5, 0, 0], [1, 0, 4]]).tolist()
    [0.1, 0.2]
    """
    counts = np.asarray(label_counts)
    chances = check_probabilities(dropout, "the dropout of a label")
    if counts.ndim != 2 or counts.shape[1] > len(chances):  # noqa: PLR2004 - users × classes
        raise UsageError(
            f"label counts have the shape {counts.shape}; give users × classes, with at most {len(chances)} "
            "classes, one for each dropout probability"
        )
    majority: IntArray = counts.argmax(axis=1)
    return chances[majority]


def _labels(labels: ArrayLike) -> IntArray:
    return frozen_integers(labels, np.int64, "labels")


def _even_starts(examples: int, users: int) -> IntArray:
    """Return where each of the users' runs of ⌊n/N⌋ or ⌈n/N⌉ examples starts, and where the last ends."""
    return np.arange(users + 1) * examples // users


def _check_enough(examples: int, users: int) -> None:
    check_count(users, "the number of users")
    if examples < users:
        raise UsageError(f"{examples} examples are too few for {users} users; every user needs at least one")


def _check_concentration(concentration: float) -> None:
    low, high = _LEAST_CONCENTRATION, _LARGEST_CONCENTRATION
    if not low <= concentration <= high:
        raise UsageError(f"the concentration κ is {concentration}; give a number from {low:g} to {high:g}")
