"""Plain aggregation: the cohort trains as one stack and its mean is taken in the open; for accuracy studies.

`WordRounding` rounds such a mean as the protocols' words do: what 16 or 32 bits cost, on a bare GPU machine too.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.errors import TooFewUsersError, UsageError
from coterie.federation.coordinator import EndedRounds, RoundOutcome
from coterie.federation.ledger import PLAIN, State
from coterie.lab.training.trainer import MeanUpdate, Updates
from coterie.values import BatchPlan, Cohort, IntArray

if TYPE_CHECKING:  # a run's setup says how its plain sums are rounded
    from coterie.lab.experiments.setup import Setup


@dataclass
class TrainingNotes:
    """What is known of the users that trained in one step, besides their updates."""

    losses: dict[int, float] = field(default_factory=dict)
    diverged: set[int] = field(default_factory=set)
    """Users whose numbers were not finite."""

    def add(self, updates: Updates | MeanUpdate) -> None:
        """Note what users' training gave."""
        self.losses.update(zip(updates.users.tolist(), updates.losses.tolist(), strict=True))
        self.diverged.update(updates.diverged.tolist())

    def mean_loss(self, users: IntArray) -> float:
        """Return the mean training loss of some of the users."""
        return float(np.mean([self.losses[user] for user in users.tolist()]))


@dataclass
class PlainAggregation:
    """One step's round without cryptography, over the users that a sealed (or an unsealed) one would have.

    Where the spec has sealed batches, one that lost a member is left out; otherwise whoever is left is added up.
    """

    setup: "Setup"
    parameters: Tensor
    step: int
    notes: TrainingNotes = field(default_factory=TrainingNotes)
    name = PLAIN
    sealed = False
    terms_digest = b""

    def ready(self, _plan: BatchPlan | None) -> None:
        """Everybody can be asked."""

    def gather(self, round_: int, cohort: Cohort, _ended: EndedRounds) -> RoundOutcome:
        """Train whoever is not lost, and take the mean; the server sees every update that arrives by itself."""
        users, lost = self.survivors(cohort)
        if len(users) == 0:
            raise TooFewUsersError("no user of the cohort was left, or no whole batch")
        mean = self.mean(users).cpu().numpy().astype(np.float64)
        return RoundOutcome(round_, State.COMMITTED, cohort, alone=users, included=users, mean=mean, lost=lost)

    def mean(self, users: IntArray) -> Tensor:
        """Train users; return their mean update, on its device and rounded if the spec wants that."""
        setup = self.setup
        if setup.rounding is None:
            mean = setup.trainer.mean(self.parameters, users, self.step)
            self.notes.add(mean)
            return mean.vector
        updates = setup.trainer.updates(self.parameters, users, self.step)
        self.notes.add(updates)
        return setup.rounding.mean(updates.vectors, updates.weights, setup.world.sum_rounding_seed(self.step))

    def survivors(self, cohort: Cohort) -> tuple[IntArray, dict[int, str]]:
        """Return the users whose updates arrive and count, and the batches that were lost."""
        plan = self.setup.plan if self.setup.spec.aggregation.sealed else None
        users = cohort.survivors(~self.setup.world.lost_users(self.step), plan)
        if plan is None:
            return users, {}
        incomplete = np.setdiff1d(cohort.batches, plan.batch_of[users])
        return users, dict.fromkeys(incomplete.tolist(), "a member was lost")


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
