"""Let a build fail when a federation gave away too much: python audit_gate.py LOG T.

audit-gate.yml beside it is a workflow that does this every night with the command `coterie audit` alone.
"""

import sys
from pathlib import Path

import coterie

log = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("participation.csv")
required = int(sys.argv[2]) if len(sys.argv) > 2 else 4

verdict = coterie.audit(log, require=required, budget=5)
print(verdict.words.headline)
print(f"strong level {verdict.strong}, weak level {verdict.weak.low} to {verdict.weak.high}")
if verdict.isolated:
    first = min(verdict.isolated, key=lambda each: each.round)
    name = verdict.log.names[first.user]
    print(f"{len(verdict.isolated)} users are isolated, {name} since round {first.round}")
    left = first.proof.result(verdict.log)  # the proof, multiplied out over the integers: one user is left
    print(
        f"{len(first.proof.sets)} sums give", {verdict.log.names[user]: str(part) for user, part in left.items()}
    )
sys.exit(not verdict.met)
