"""How a client learns from its own data in a round: `LocalTraining`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.errors import UsageError
from coterie.values import IntArray
from coterie.values.checks import check_count

Weighting = Literal["equal", "examples"]
"""A user's weight in the mean update: one, or the number of its examples."""


@dataclass(frozen=True)
class LocalTraining:
    """What every client does in a round: `epochs` passes of SGD over its minibatches.

    In round t the rate is `learning_rate` times the factors of all steps (round, factor) of `schedule` with
    round ≤ t. Rounds count from 0. A step with rate η, gradient g of a minibatch's mean loss, momentum μ and
    weight decay δ is

        v ← μ v + g + δ x,    x ← x - η v,

    with v = 0 at the start of the round: nothing but the model outlives a round. Minibatches are cut from the
    user's examples in their fixed order, or (`shuffled`) in an order drawn anew for each epoch.

    >>> settings = LocalTraining(minibatch=50, learning_rate=0.1, schedule=((400, 0.4), (800, 0.4)))
    >>> [round(settings.rate(t), 6) for t in (0, 399, 400, 800)]
    [0.1, 0.1, 0.04, 0.016]
    >>> settings.steps(120)
    3
    """

    epochs: int = 1
    minibatch: int = 50
    learning_rate: float = 0.1
    schedule: tuple[tuple[int, float], ...] = ()
    momentum: float = 0.0
    weight_decay: float = 0.0
    shuffled: bool = False
    dropout: bool = True
    """Whether the model's dropout layers drop; without, training sees the model as it is tested."""
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        check_count(self.epochs, "the number of local epochs")
        check_count(self.minibatch, "the minibatch size")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UsageError(f"the learning rate is {self.learning_rate}; give a number above 0")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"the momentum is {self.momentum}; give a number from 0 up to, not including, 1")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise UsageError(f"the weight decay is {self.weight_decay}; give a number from 0 up")
        if self.weighting not in {"equal", "examples"}:
            raise UsageError(f"the weighting is {self.weighting!r}; give 'equal' or 'examples'")
        steps = tuple((check_count(at, "a round of the schedule", least=0), float(by)) for at, by in self.schedule)
        for at, factor in steps:
            if not (factor > 0 and math.isfinite(factor)):
                raise UsageError(f"the schedule's factor at round {at} is {factor}; give a number above 0")
        object.__setattr__(self, "schedule", steps)

    def rate(self, round_: int) -> float:
        """Return the learning rate in a round."""
        return self.learning_rate * math.prod(factor for start, factor in self.schedule if start <= round_)

    def steps(self, examples: int) -> int:
        """Return how many SGD steps a user with so many examples takes in a round."""
        return self.epochs * -(-examples // self.minibatch)

    def weights(self, examples: Sequence[int] | IntArray) -> IntArray:
        """Return the weights of users with so many examples.

        >>> LocalTraining(weighting="examples").weights([3, 5]).tolist()
        [3, 5]
        """
        sizes = np.asarray(examples, dtype=np.int64)
        return sizes if self.weighting == "examples" else np.ones_like(sizes)
