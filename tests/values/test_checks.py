"""What the theory refuses, and how it says so."""

import numpy as np
import pytest

from coterie.errors import UsageError
from coterie.selection import theory
from coterie.values import checks

NAN = float("nan")


@pytest.mark.parametrize(
    ("users", "per_round", "privacy", "words"),
    [
        (0, 1, 1, "users N is 0"),
        (10, 0, 1, "per round K is 0"),
        (10, 5, 0, "level T is 0"),
        (10, 5, 6, "T = 6 is above K = 5"),
        (10, 11, 1, "K = 11 users per round is above N = 10"),
        (10.0, 5, 1, "users N is 10.0"),
        (10, True, 1, "per round K is True"),
        (10, 5, "2", "level T is '2'"),
    ],
)
def test_broken_rules_are_named(users: object, per_round: object, privacy: object, words: str) -> None:
    """Unless 1 ≤ T ≤ K ≤ N are integers, the error names the broken rule and the value."""
    with pytest.raises(UsageError, match=words):
        checks.check_parameters(users, per_round, privacy)  # type: ignore[arg-type]


def test_numpy_integers_are_integers() -> None:
    """Counts that come out of arrays are taken."""
    checks.check_parameters(np.int64(10), np.int32(4), np.uint8(2))  # type: ignore[arg-type]
    assert theory.family_size(np.int64(10), np.int64(4), np.int64(2)) == 10  # type: ignore[arg-type]


@pytest.mark.parametrize("formula", [theory.family_size, checks.check_divides])
def test_theorems_need_divisible_numbers(formula: object) -> None:
    """T must divide N and K where the theorem says so."""
    with pytest.raises(UsageError, match="does not divide N = 10"):
        formula(10, 6, 3)  # type: ignore[operator]
    with pytest.raises(UsageError, match="does not divide K = 5"):
        formula(10, 5, 2)  # type: ignore[operator]


@pytest.mark.parametrize("bad", [-0.1, 1.1, NAN, float("inf")])
def test_probabilities_lie_between_zero_and_one(bad: float) -> None:
    """A value that is no probability is refused wherever one is asked for, with the value."""
    with pytest.raises(UsageError, match=str(bad)):
        checks.check_probability(bad, "the dropout")
    with pytest.raises(UsageError, match=f"number 1 is {bad}"):
        checks.check_probabilities([0.5, bad], "dropout")
    with pytest.raises(UsageError):
        theory.cardinality(120, 12, 6, bad)
    with pytest.raises(UsageError):
        theory.at_least([0.5, bad], 1)
    with pytest.raises(UsageError):
        theory.participation_rates([0.5, bad], 1)


def test_probabilities_come_as_a_list() -> None:
    """A table of probabilities is refused."""
    with pytest.raises(UsageError, match="shape"):
        checks.check_probabilities([[0.5]], "dropout")


def test_a_round_cannot_need_more_batches_than_there_are() -> None:
    """Rates of batches exist only if enough batches do."""
    with pytest.raises(UsageError, match="only 2"):
        theory.participation_rates([0.5, 0.5], 3)
    with pytest.raises(UsageError, match="is 0"):
        theory.participation_rates([0.5, 0.5], 0)
