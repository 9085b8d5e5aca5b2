"""Sixteen users in batches of four add up vectors that nobody else ever sees; one user is lost on the way."""

import numpy as np

from coterie.secagg import (
    RING_16,
    BatchRules,
    DeviceConfiguration,
    Quantiser,
    Terms,
    found_batch,
    run_round,
    sealed_round,
    simulated_client,
)

rng = np.random.default_rng(0)
device = DeviceConfiguration(scopes={"demo"}, least_privacy=4)
users = {f"user-{number:02}": simulated_client(f"user-{number:02}", device) for number in range(16)}
names = list(users)

# Every batch founds itself: fresh keys, one charter with all rules, signed by all of its members.
rules = BatchRules("demo", privacy=4, quantiser=Quantiser(RING_16, clip=1.0, weight_cap=1, cohort=16))
charters = [found_batch(rules, [users[name] for name in names[i : i + 4]]) for i in range(0, 16, 4)]

# A round: the server sends terms, users train and seal, and SecAgg+ adds up; user-05 is lost before its upload.
UPLOAD = 3  # of the phases 0 to 5
updates = {name: rng.normal(0, 0.1, 1000).astype(np.float32) for name in users}
terms = Terms(model=b"model v1", dimension=1000, min_included=8)
result = run_round(
    sealed_round(charters, round_=0, terms=terms),
    users,
    train=lambda user, task: updates[user],
    loses=lambda user, phase, way: user == "user-05" and phase >= UPLOAD,
)

(learned,) = result.learned
print(f"{len(learned.users)} users in the sum:", *learned.users)
print("one batch left out:", *result.lost.values())
error = np.abs(learned.sum.values - sum(updates[name] for name in learned.users)).max()
print(f"largest error of a value of the sum, from rounding to 16 bits: {error:.3f}")
