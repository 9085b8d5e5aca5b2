"""What the server legitimately has of a federation's rounds: all that an attack may read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.errors import UsageError
from coterie.values import FloatArray, IntArray
from coterie.values.checks import check_users, frozen_integers

CHUNK_BYTES = 2**27
"""Memory for one piece of all rounds' aggregates: models of any size are attacked in pieces of this size."""


@dataclass(frozen=True, eq=False)
class ServerView:
    """Rounds as an honest-but-curious server sees them: who took part, the mean update, the global model.

    `learned[t]` are the users of round `rounds[t]`, and `means[t]` is their mean update, a vector of D values;
    both are what secure aggregation shows to every server. `model` is the global model before the first of these
    rounds. The server adds each round's mean to it, so it knows the models x_t of all rounds:
    x_{t+1} = x_t + means[t]. `totals[t]` is the weight by which the sum of round t was divided: the number of its
    users, unless users have weights of their own. A user's own weight is not in here; nor is any update, any
    example, or any key.

    Vectors may be memory maps: they are read in pieces (`pieces`), never all at once.

    >>> view = ServerView.of(
    ...     users=3, learned=[[0, 1], [1, 2]], means=torch.tensor([[1.0, 2.0], [3.0, 4.0]]), model=torch.zeros(2)
    ... )
    >>> view.participation.tolist()
    [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    >>> view.model_before(1).tolist()
    [1.0, 2.0]
    """

    users: int
    rounds: tuple[int, ...]
    learned: tuple[IntArray, ...]
    means: tuple[Tensor, ...]
    model: Tensor
    totals: FloatArray

    def __post_init__(self) -> None:
        if not self.rounds:
            raise UsageError("the server has seen no round with a result: there is nothing to attack")
        if not len(self.rounds) == len(self.learned) == len(self.means) == len(self.totals):
            raise UsageError(
                f"the server's view has {len(self.rounds)} rounds, {len(self.learned)} sets of users, "
                f"{len(self.means)} mean updates and {len(self.totals)} totals; give one of each per round"
            )
        for round_, members, mean in zip(self.rounds, self.learned, self.means, strict=True):
            check_users(members, self.users)
            if mean.shape != self.model.shape or mean.ndim != 1:
                raise UsageError(
                    f"the mean update of round {round_} has the shape {tuple(mean.shape)}, the model "
                    f"{tuple(self.model.shape)}; give vectors of one length"
                )

    @classmethod
    def of(
        cls,
        users: int,
        learned: Sequence[Sequence[int] | IntArray],
        means: Sequence[Tensor] | Tensor,
        model: Tensor,
        *,
        rounds: Sequence[int] | None = None,
        totals: Sequence[float] | FloatArray | None = None,
    ) -> "ServerView":
        """Put a view together; rounds count from 0 unless numbered, and users weigh 1 unless totals are given."""
        sets = tuple(frozen_integers(members, np.int64, "the users of a round") for members in learned)
        weights = [len(members) for members in sets] if totals is None else totals
        return cls(
            users,
            tuple(range(len(sets))) if rounds is None else tuple(rounds),
            sets,
            tuple(means),
            model,
            np.asarray(weights, dtype=np.float64),
        )

    @property
    def parameters(self) -> int:
        """The number D of values of a model or an update."""
        return len(self.model)

    @property
    def participation(self) -> FloatArray:
        """The participation matrix P, rounds × users: 1 where a user's update is in a round's sum, else 0."""
        matrix = np.zeros((len(self.rounds), self.users))
        for row, members in enumerate(self.learned):
            matrix[row, members] = 1.0
        return matrix

    def model_before(self, place: int) -> Tensor:
        """Return the global model at the start of the round at a place in this view, as users were given it."""
        model = self.model.clone()
        for mean in self.means[:place]:
            model += mean.to(model)
        return model

    def window(self, start: int, length: int) -> "ServerView":
        """Return the view of `length` consecutive rounds of this one, from a place on."""
        end = start + length
        if not 0 <= start < end <= len(self.rounds):
            raise UsageError(
                f"there is no window of {length} rounds from place {start} on in a view of {len(self.rounds)}"
            )
        return ServerView(
            self.users,
            self.rounds[start:end],
            self.learned[start:end],
            self.means[start:end],
            self.model_before(start),
            self.totals[start:end],
        )

    def pieces(self, memory: int = CHUNK_BYTES) -> Iterator[tuple[slice, Tensor]]:
        """Yield pieces of all rounds' *sums*, rounds × some parameters in float64, and where they belong."""
        width = max(1, memory // (8 * len(self.rounds)))
        totals = torch.from_numpy(self.totals).to(self.model.device)
        for start in range(0, self.parameters, width):
            place = slice(start, min(start + width, self.parameters))
            yield place, torch.stack([mean[place].double() for mean in self.means]) * totals[:, None]
