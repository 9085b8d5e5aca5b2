"""Twelve users in batches of four add up vectors that nobody else ever sees; one user is lost on the way."""

import numpy as np

from coterie.secagg import DeviceConfiguration, Terms, found_batch, run_open_round, simulated_client

rng = np.random.default_rng(0)
device = DeviceConfiguration(scopes={"demo"}, least_privacy=4)
users = {f"user-{number}": simulated_client(f"user-{number}", device) for number in range(12)}
names = list(users)

# Every batch founds itself: fresh keys, one charter, signed by all of its members.
charters = [found_batch("demo", 4, [users[name] for name in names[i : i + 4]]) for i in (0, 4, 8)]

# A round: the server sends terms, users seal their updates, user-5 is lost on the way.
updates = {name: rng.normal(0, 0.1, 1000).astype(np.float32) for name in users}
terms = Terms(model=b"model v1", configuration=b"lr=0.1", dimension=1000, clip=1.0, cohort=12)
result = run_open_round(
    charters,
    users,
    round_=0,
    terms=terms,
    train=lambda user, task: updates[user],
    loses=lambda user, way: user == "user-5",
)

print("complete batches:", [batch.users for batch in result.batches])
print("left out:", list(result.lost.values()))
whole = sum(updates[name] for batch in result.batches for name in batch.users)
print("largest error of the sum:", float(np.abs(result.sum.values - whole).max()))
