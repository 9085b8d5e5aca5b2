"""Choose T for a federation, compare it with random selection, and audit what either would give away."""

import coterie
from coterie.selection import IndependentDropout
from coterie.simulation import Scheme, Simulation, trial_log

trade_off = coterie.plan(users=60, per_round=12, dropout=[0.1, 0.2, 0.3])
print(trade_off.verdict)
print(trade_off.plan)

result = coterie.simulate(
    users=60, per_round=12, schemes=["random"], plan=trade_off.plan, dropout=[0.1, 0.2, 0.3], rounds=80, trials=5
)
for scheme, level, cardinality in zip(
    result.schemes, result.columns()["strong_low"], result.columns()["cardinality"], strict=True
):
    print(f"{scheme}: T = {level} in the worst trial, {cardinality:.1f} users in a round")

# The log of a trial, audited like any platform's.
plan_scheme = Scheme("plan", coterie.BatchSelector(trade_off.plan, per_round=12))
availability = IndependentDropout([0.2] * 60)
log = trial_log(Simulation(60, 12, rounds=80, schemes=(plan_scheme,), availability=availability), scheme=0)
print(coterie.audit(log, require=trade_off.plan.privacy).words.headline)
