"""When users can be reached: the models that selection, planning and simulation draw from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coterie.theory import check_probabilities
from coterie.values import BoolArray, FloatArray


def draw_dropout(choices: Sequence[float], users: int, rng: np.random.Generator) -> FloatArray:
    """Draw each user's dropout probability uniformly from a few values (the paper's "Modeling dropouts").

    >>> draw_dropout([0.1, 0.5], users=4, rng=np.random.default_rng(1)).tolist()
    [0.1, 0.5, 0.5, 0.5]
    """
    return rng.choice(check_probabilities(choices, "dropout"), size=users)


@dataclass(frozen=True)
class IndependentDropout:
    """User i is away with probability `dropout[i]`, independently of everyone and of every other round.

    >>> IndependentDropout([0.0, 1.0]).sample(np.random.default_rng(0)).tolist()
    [True, False]
    """

    dropout: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "dropout", check_probabilities(self.dropout, "dropout"))

    def sample(self, rng: np.random.Generator) -> BoolArray:
        """Return who is available in one round."""
        dropout = np.asarray(self.dropout)
        return rng.random(len(dropout)) >= dropout
