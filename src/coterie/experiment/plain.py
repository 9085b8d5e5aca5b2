"""Plain aggregation: the cohort trains as one stack and its mean is taken in the open; for accuracy studies."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from coterie.coordinator import EndedRounds, RoundOutcome
from coterie.errors import TooFewUsers
from coterie.experiment.parts import Parts
from coterie.ledger import State
from coterie.values import BatchPlan, Cohort, FloatArray, IntArray


@dataclass
class PlainAggregation:
    """One step's round without cryptography, over the users that a sealed (or an unsealed) one would have.

    Sealed, a batch that lost a member is left out; otherwise whoever is left is added up.
    """

    parts: Parts
    parameters: Tensor
    step: int
    losses: dict[int, float] = field(default_factory=dict, init=False)
    """The training losses of the users that trained."""
    name = "plain"
    sealed = False
    terms = b""

    def ready(self, plan: BatchPlan | None) -> None:
        """Everybody can be asked."""
        del plan

    def gather(self, round_: int, cohort: Cohort, ended: EndedRounds) -> RoundOutcome:
        """Train whoever is not lost, and take the mean; the server sees every update that arrives by itself."""
        del ended
        users, lost = self.survivors(cohort)
        if len(users) == 0:
            raise TooFewUsers("no user of the cohort was left, or no whole batch")
        mean, losses = self.mean(users)
        self.losses.update(zip(users.tolist(), losses.tolist(), strict=True))
        return RoundOutcome(
            round=round_,
            state=State.COMMITTED,
            cohort=cohort,
            alone=users,
            included=users,
            mean=mean.cpu().numpy().astype(np.float64),
            lost=lost,
        )

    def mean(self, users: IntArray) -> tuple[Tensor, FloatArray]:
        """Return the mean update, on its device and rounded if the spec wants that, and the users' losses."""
        parts = self.parts
        if parts.rounding is None:
            mean = parts.trainer.mean(self.parameters, users, self.step)
            return mean.vector, mean.losses
        updates = parts.trainer.updates(self.parameters, users, self.step)
        seed = parts.world.sum_rounding_seed(self.step)
        return parts.rounding.mean(updates.vectors, updates.weights, seed), updates.losses

    def survivors(self, cohort: Cohort) -> tuple[IntArray, dict[int, str]]:
        """Return the users whose updates arrive and count, and the batches that were lost."""
        lost, plan = self.parts.world.lost(self.step), self.parts.plan
        if plan is None or not self.parts.spec.aggregation.sealed:
            return cohort.users[~lost[cohort.users]], {}
        whole = np.array([not lost[plan.batch(batch)].any() for batch in cohort.batches], dtype=np.bool_)
        incomplete = dict.fromkeys(cohort.batches[~whole].tolist(), "a member was lost")
        return plan.users_of(cohort.batches[whole]), incomplete
