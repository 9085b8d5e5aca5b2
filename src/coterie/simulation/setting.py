"""What to simulate: schemes, users, rounds, and who is lost, leaves and joins."""

import math
from dataclasses import dataclass

from coterie.errors import UsageError
from coterie.selection import AvailabilityModel, Selector
from coterie.values.checks import check_count, check_parameters, check_probability


@dataclass(frozen=True)
class Scheme:
    """A selector under a name; `sealed` says what the server learns when a chosen user is lost mid-round.

    Sealed, an incomplete batch is left out as a whole. Unsealed (and in schemes without batches), the sum of
    the survivors comes out, which splits the batch.
    """

    name: str
    selector: Selector
    sealed: bool = True


@dataclass(frozen=True)
class Simulation:
    """What to simulate. `availability` may know more users than take part at first: they join later."""

    users: int
    per_round: int
    rounds: int
    schemes: tuple[Scheme, ...]
    availability: AvailabilityModel
    seed: int = 0
    lost: float = 0.0
    """Probability that a chosen user is lost before the round ends."""
    leaving: float = 0.0
    """Probability that a user leaves for good, per round."""
    joining: float = 0.0
    """Newcomers per round, on average."""

    def __post_init__(self) -> None:
        check_parameters(self.users, self.per_round)
        check_count(self.rounds, "the number of rounds")
        check_probability(self.lost, "the probability to be lost mid-round")
        check_probability(self.leaving, "the probability to leave")
        room_for_newcomers(self.joining, self.rounds)
        if self.availability.users < self.users:
            raise UsageError(
                f"availability is known for {self.availability.users} users, fewer than the {self.users} users"
            )
        if not self.schemes:
            raise UsageError("no scheme was given to simulate")
        names = [scheme.name for scheme in self.schemes]
        if len(set(names)) != len(names):
            raise UsageError(f"a scheme is given twice: {', '.join(names)}")


def room_for_newcomers(joining: float, rounds: int) -> int:
    """Return how many newcomers a simulation should be ready for: twice as many as are expected."""
    if not (joining >= 0 and math.isfinite(joining)):
        raise UsageError(f"newcomers per round are {joining}; give a number from 0 up")
    return round(2 * joining * rounds)
