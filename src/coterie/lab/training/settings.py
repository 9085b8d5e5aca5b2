"""How a client learns from its own data in a round: `LocalTraining`, and the recipe that it is in a charter."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from coterie.errors import UsageError
from coterie.values import IntArray
from coterie.values.checks import check_count
from coterie.values.tables import from_table

Weighting = Literal["equal", "examples"]
"""A user's weight in the mean update: one, or the number of its examples."""


@dataclass(frozen=True)
class LocalTraining:
    """What every client does in a round: `epochs` passes of SGD over its minibatches.

    In round t the rate is `learning_rate` times the factors of all steps (round, factor) of `schedule` with
    round ≤ t. Rounds count from 0. A step with rate η, gradient g of a minibatch's mean loss, momentum μ and
    weight decay δ is

        v ← μ v + g + δ x,    x ← x - η v,

    with v = 0 at the start of the round: nothing but the model outlives a round. So an update is a function of
    the model's parameters, these settings, the round, the user's own data and the seed.

    >>> settings = LocalTraining(minibatch=50, learning_rate=0.1, schedule=((400, 0.4), (800, 0.4)))
    >>> [round(settings.rate(t), 6) for t in (0, 399, 400, 800)]
    [0.1, 0.1, 0.04, 0.016]
    >>> settings.steps(120)
    3
    """

    model: str = "small-cnn"
    """The model: small-cnn, mnist-cnn, lenet, vgg-11, authors-vgg-11, mlp, logistic, or your own as
    "my_module:build"."""
    epochs: int = 1
    """Passes of each user over its data in a round."""
    minibatch: int = 20
    """Examples in one step of SGD."""
    learning_rate: float = 0.1
    """Learning rate of the local training."""
    schedule: tuple[tuple[int, float], ...] = ()
    """Rounds and factors of the learning rate, such as [[400, 0.4], [800, 0.4]]."""
    momentum: float = 0.0
    """Momentum of the local training, from 0 anew in every round."""
    weight_decay: float = 0.0
    """Weight decay of the local training."""
    shuffled: bool = True
    """Whether each epoch has an order of its own; if not, minibatches keep the fixed order of a user's data."""
    dropout: bool = True
    """Whether the model's dropout layers drop while it is trained."""
    weighting: Weighting = "equal"
    """Whether users count the same (equal), or by how many examples they have (examples)."""

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
        for name in ("learning_rate", "momentum", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)) + 0.0)  # -0.0 is 0.0
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

    def recipe(self) -> dict[str, Any]:
        """Return what decides an update and stays fixed for the life of a batch, as plain JSON values.

        There is no choice of examples in it, no time budget, no device and no number of workers or rounds.
        """
        values = {field.name: getattr(self, field.name) for field in fields(LocalTraining)}
        return {**values, "schedule": [list(step) for step in self.schedule]}

    def recipe_bytes(self) -> bytes:
        """Return the recipe as canonical JSON: keys sorted, no white space, UTF-8. Equal settings, equal bytes.

        >>> LocalTraining(learning_rate=1).recipe_bytes()[:43]
        b'{"dropout":true,"epochs":1,"learning_rate":'
        """
        text = json.dumps(
            self.recipe(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()

    @staticmethod
    def from_recipe(recipe: bytes) -> "LocalTraining":
        """Return the settings of a recipe's bytes; refuse any but those that `recipe_bytes` gives.

        >>> LocalTraining.from_recipe(LocalTraining(epochs=3).recipe_bytes()).epochs
        3
        >>> LocalTraining.from_recipe(b'{"epochs": 3}')
        Traceback (most recent call last):
        coterie.errors.UsageError: a recipe is not in canonical form: every setting, keys sorted, no white space
        """
        try:
            table = json.loads(recipe)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"a recipe is not JSON: {error}") from None
        settings = from_table(LocalTraining, table, "a recipe")
        if settings.recipe_bytes() != recipe:
            raise UsageError("a recipe is not in canonical form: every setting, keys sorted, no white space")
        return settings
