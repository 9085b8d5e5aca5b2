"""Draw the documentation's pictures; each has its record beside it, from which it can be drawn again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpz_mat

from coterie.report.figures import exposure
from coterie.selection import BatchSelector, RandomSelector, Selector, consecutive

PICTURES = Path(__file__).parent / "pictures"
USERS, PER_ROUND, PRIVACY, ROUNDS, SEED = 40, 8, 4, 60, 7


def isolated(rows: list[list[int]]) -> list[int]:
    """Return the users whose unit vector lies in the row space: in exact reduced form, a row of one entry."""
    reduced, _, rank = fmpz_mat(rows).rref()
    entries = (np.flatnonzero([int(value) != 0 for value in reduced.tolist()[row]]) for row in range(rank))
    return [int(columns[0]) for columns in entries if len(columns) == 1]


def panel(selector: Selector, scheme: str) -> dict[str, Any]:
    """Run a scheme with everyone available and note the round at which each user is exposed."""
    rng = np.random.default_rng(SEED)
    counts = np.zeros(USERS, dtype=np.int64)
    rows: list[list[int]] = []
    exposed: list[int | None] = [None] * USERS
    sets = []
    for round_ in range(ROUNDS):
        cohort = selector.choose(np.ones(USERS, dtype=np.bool_), counts, rng)
        assert cohort is not None  # noqa: S101 - everyone is available
        counts[cohort.users] += 1
        sets.append(cohort.users.tolist())
        rows.append(np.isin(np.arange(USERS), cohort.users).astype(int).tolist())
        for user in isolated(rows):
            exposed[user] = round_ if exposed[user] is None else exposed[user]
    found = sum(since is not None for since in exposed)
    ending = (
        f"all {found} users exposed by round {max(s for s in exposed if s is not None) + 1}"
        if found
        else "nobody exposed"
    )
    return {"title": f"{scheme}: {ending}", "sets": sets, "exposed": exposed}


def idea() -> dict[str, Any]:
    """Random selection exposing everyone, beside batches that hold."""
    return {
        "users": USERS,
        "rounds": ROUNDS,
        "panels": [
            panel(RandomSelector(PER_ROUND), "random selection"),
            panel(BatchSelector(consecutive(USERS, PRIVACY), PER_ROUND), f"batches of {PRIVACY}"),
        ],
    }


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    record = idea()
    (PICTURES / "idea.json").write_text(json.dumps(record) + "\n")
    exposure(record, PICTURES / "idea.svg")
    print("drew docs/pictures/idea.svg")
