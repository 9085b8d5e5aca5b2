"""Make participation.csv: forty users, eight drawn at random in each of forty-two rounds."""

import sys
from pathlib import Path

import numpy as np

from coterie import LogBuilder
from coterie.logs import write_log
from coterie.selection import RandomSelector

USERS, PER_ROUND, ROUNDS, SEED = 40, 8, 42, 7


def main(path: Path) -> None:
    """Select as many federations do, and write down whose updates were summed."""
    rng = np.random.default_rng(SEED)
    selector = RandomSelector(PER_ROUND)
    log = LogBuilder(USERS, names=[f"user-{number:02d}" for number in range(USERS)])
    everyone, counts = np.ones(USERS, dtype=np.bool_), np.zeros(USERS, dtype=np.int64)
    for _ in range(ROUNDS):
        cohort = selector.choose(everyone, counts, rng)
        log.append(cohort.users)
        counts[cohort.users] += 1
    write_log(log.build(), path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("participation.csv"))
