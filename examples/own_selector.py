"""Choose cohorts your own way, and see what that gives away: the fastest users against the fastest batches."""

from dataclasses import dataclass

import numpy as np

import coterie
from coterie.selection import consecutive
from coterie.selection.simulation import Scheme

USERS, PER_ROUND, T = 60, 12, 4
seconds = np.random.default_rng(0).lognormal(3, 0.6, USERS)  # what a round takes each user


@dataclass(frozen=True)
class FastestUsers:
    """The fastest users who are there, one by one: what many schedulers do."""

    def choose(self, available, counts, rng):
        """Return a cohort; `counts` is how often everyone took part before."""
        today = seconds * rng.uniform(0.5, 1.5, USERS)
        users = np.argsort(np.where(available, today, np.inf))[:PER_ROUND]
        return coterie.Cohort(np.sort(users), batches=())


@dataclass(frozen=True)
class FastestBatches:
    """The same with whole batches, each as fast as its slowest member; those that took part often wait."""

    plan: coterie.BatchPlan

    def over(self, plan):
        """Return the same for another plan; a selector without this is not taken for one of sealed batches."""
        return FastestBatches(plan)

    def choose(self, available, counts, rng):
        """Return whole batches, or None if too few are whole: the round is skipped."""
        whole = self.plan.whole(available)
        members = [self.plan.batch(number) for number in whole]
        waiting = [seconds[users].max() * (1 + counts[users[0]]) for users in members]
        batches = np.sort(whole[np.argsort(waiting)[: PER_ROUND // T]])
        return coterie.Cohort(self.plan.users_of(batches), batches) if len(batches) == PER_ROUND // T else None


schemes = [
    "random",
    Scheme("fastest users", FastestUsers()),
    Scheme("fastest batches", FastestBatches(consecutive(USERS, privacy=T))),
]
result = coterie.simulate(users=USERS, per_round=PER_ROUND, dropout=0.1, rounds=120, trials=10, schemes=schemes)
values = result.columns
print("                 T  users isolated  fairness gap  users a round")
for row, scheme in enumerate(result.schemes):
    level, isolated = values["strong_low"][row], values["isolated_share"][row]
    gap, users = values["fairness_gap"][row], values["cardinality"][row]
    print(f"{scheme:16} {level} {isolated:15.0%} {gap:13.2f} {users:14.1f}")
