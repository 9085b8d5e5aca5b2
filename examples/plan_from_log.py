"""Which T can we afford? Plan a federation from a log of who was online when, and try the plan on that log."""

import sys
from pathlib import Path

import coterie

LOG = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("availability.csv")
PER_ROUND = 12

online = coterie.read_availability(LOG)
print(f"{online.users} devices over {online.rounds} rounds, away {online.dropout.mean():.0%} of the time")

# Every T and every kind of plan is judged on the second half of the log, after being made from the first.
trade_off = coterie.plan(availability=online, per_round=PER_ROUND)
print("\n T  plan                 users a round  rounds skipped")
for option in trade_off.options:
    if option.privacy in {2, 4, 6}:
        trade = option.trade
        print(f"{option.privacy:2}  {option.kind:20} {trade.cardinality:13.1f}  {trade.skipped:14.0%}")
first = [trade_off.plan.names[user] for user in trade_off.plan.batch(0)]
print(f"\n{trade_off.verdict} Its first batch: {', '.join(first)}")

# What the plan gives away, and what random selection would have given away on the same devices.
result = coterie.simulate(
    availability=online, per_round=PER_ROUND, schemes=["random"], plan=trade_off.plan, rounds=96, trials=5
)
values = result.columns
print("\nAfter 96 rounds:")
for scheme, level, isolated in zip(result.schemes, values["strong_low"], values["isolated_share"], strict=True):
    print(f"{scheme:6}  T = {level}, {isolated:.0%} of the users' updates can be computed alone")
