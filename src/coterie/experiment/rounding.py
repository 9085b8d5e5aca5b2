"""The rounding of the protocols' words, for plain sums: what 16 or 32 bits cost, on a bare GPU machine too."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.errors import UsageError
from coterie.values import IntArray


@dataclass(frozen=True)
class WordRounding:
    """Adds updates up as a secure protocol does, in words modulo q = 2^bits, but in the open.

    A value x of a user of weight w is clipped to [-c, c] and becomes w·(x + c)/s, rounded up or down at random so
    that its mean stays, with s = 2c / (levels - 1) and levels the largest number for which no sum can wrap:
    cohort · weight_cap · (levels - 1) ≤ q - 1. The sum of the words, times s, less c times the sum of the weights,
    is the sum of the weighted updates. It is computed on the updates' own device.

    >>> rounding = WordRounding(word_bits=16, clip=0.5, weight_cap=1, cohort=20)
    >>> rounding.levels
    3277
    """

    word_bits: int
    clip: float
    weight_cap: int
    """The largest weight of a user."""
    cohort: int
    """The most users that are ever added up."""

    def __post_init__(self) -> None:
        if self.levels < 2:  # noqa: PLR2004 - one level says nothing
            raise UsageError(
                f"{self.cohort} users of weight up to {self.weight_cap} leave no level for a value in words of "
                f"{self.word_bits} bits; lower selection.per_round or aggregation.weight_cap, or take 32 bits"
            )

    @property
    def levels(self) -> int:
        """How many levels a value has."""
        highest: int = 2**self.word_bits - 1
        return highest // (self.cohort * self.weight_cap) + 1

    @property
    def step(self) -> float:
        """The distance between two levels, s = 2c / (levels - 1)."""
        return 2.0 * self.clip / (self.levels - 1)

    def sum_of_words(self, vectors: Tensor, weights: IntArray, seed: int) -> Tensor:
        """Return the sum of the users' words (D, int64) for updates of users × D; `seed` decides the rounding."""
        generator = torch.Generator(vectors.device).manual_seed(seed)
        total = torch.zeros(vectors.shape[1], dtype=torch.int64, device=vectors.device)
        for vector, weight in zip(vectors, weights.tolist(), strict=True):
            highest = weight * (self.levels - 1)
            words = (vector.double().clamp(-self.clip, self.clip) + self.clip) * (highest / (2.0 * self.clip))
            words += torch.rand(words.shape, generator=generator, dtype=torch.float64, device=words.device)
            total += words.floor_().clamp_(max=highest).long()  # a float64 might just reach the word above
        return total

    def mean(self, vectors: Tensor, weights: IntArray, seed: int) -> Tensor:
        """Return the weighted mean Σ w_i x_i / Σ w_i as it comes out of the words."""
        total = int(weights.sum())
        values = self.sum_of_words(vectors, weights, seed).double() * self.step - total * self.clip
        return values / total
