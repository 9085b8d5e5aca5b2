"""Attack your own runs as their server could: random selection against batches of four, on the same data."""

import tempfile
from pathlib import Path

import coterie

folder = Path(tempfile.mkdtemp(prefix="attacked-"))
for scheme in ("random", "T4"):
    result = coterie.run(
        scheme=scheme,
        users=20,
        per_round=8,
        rounds=24,
        dropout=0.1,
        model="logistic",
        partition="shards",  # users hold different digits
        minibatch=600,  # one step over all examples of a user
        learning_rate=0.001,
        aggregation="plain",  # whose sums there are decides here, not how they are taken
        keep_aggregates=True,  # what the server sees: who took part, and the mean update
        out=folder / scheme,
    )
    attacked = coterie.attack(result.path)
    found, median = len(attacked.strongest.errors.found_users), attacked.strongest.errors.summary()["median"]
    print(f"{scheme}: of 20 users the attack finds {found}; median error {median:.2g}, where 1 is a guess of zero")
