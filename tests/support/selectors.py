"""A selector of batches as somebody else would write it: the shape of one, and no kin of ours."""

from dataclasses import dataclass

from coterie.selection import BatchSelector


@dataclass(frozen=True)
class OwnSelector:
    """Chooses what the selector inside would, and has of it nothing but what `PlanSelector` asks for."""

    inside: BatchSelector

    @property
    def plan(self):
        """The batches."""
        return self.inside.plan

    def over(self, plan):
        """The same for another plan."""
        return OwnSelector(self.inside.over(plan))

    def choose(self, available, counts, rng):
        """The cohort that the one inside chooses."""
        return self.inside.choose(available, counts, rng)
