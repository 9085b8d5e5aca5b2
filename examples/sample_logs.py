"""Make the two logs beside this file, as a platform might have written them.

participation.csv: forty users, eight drawn at random in each of forty-two rounds.
availability.csv: forty-eight phones in three time zones, hour by hour over four days; they charge at night.
"""

import sys
from pathlib import Path

import numpy as np

import coterie


def participation() -> coterie.ParticipationLog:
    """Select as many federations do, and write down whose updates were summed."""
    users, rng = 40, np.random.default_rng(7)
    selector = coterie.RandomSelector(per_round=8)
    log = coterie.LogBuilder(users, names=[f"user-{number:02d}" for number in range(users)])
    everyone, counts = np.ones(users, dtype=np.bool_), np.zeros(users, dtype=np.int64)
    for _ in range(42):
        cohort = selector.choose(everyone, counts, rng)
        log.append(cohort.users)
        counts[cohort.users] += 1
    return log.build()


def availability() -> coterie.ParticipationLog:
    """Write down who was idle, charging and online in each hour: mostly from 22 to 7 o'clock, where they live."""
    users, rng = 48, np.random.default_rng(7)
    log = coterie.LogBuilder(users, names=[f"phone-{number:02d}" for number in range(users)])
    zone = rng.choice([0, 8, 16], size=users)
    for hour in range(96):
        local = (hour + zone) % 24
        log.append(np.flatnonzero(rng.random(users) < np.where((local >= 22) | (local < 7), 0.97, 0.25)))
    return log.build()


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, log in (("participation.csv", participation()), ("availability.csv", availability())):
        coterie.write_log(log, folder / name)
        print(f"wrote {folder / name}: {log}")
