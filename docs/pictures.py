"""Draw the documentation's pictures; each has its record beside it, from which it can be drawn again."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpz_mat

from coterie import simulate
from coterie.pages.figures import COLOURS, figure_file, key_metrics
from coterie.selection import BatchSelector, RandomSelector, RedrawnDropout, Selector, consecutive

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


def exposure(record: dict[str, Any], path: Path) -> None:
    """Draw who took part when under several schemes, and from which round on the server has a user alone.

    The record holds `users`, `rounds` and `panels`, each with a `title`, the learned `sets` round by round and
    `exposed`, for each user the round at which its update became computable, or None.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    shades = {
        "not in the round": "#80808020",  # on a light ground as on a dark one
        "took part": COLOURS[0],
        "exposed": f"{COLOURS[1]}55",
        "took part, exposed": COLOURS[1],
    }
    panels = record["panels"]
    with figure_file(path, 9.6, 3.7, columns=len(panels)) as columns:
        for axes, panel in zip(columns, panels, strict=True):
            picture = np.zeros((record["users"], record["rounds"]), dtype=np.int64)
            for round_, users in enumerate(panel["sets"]):
                picture[users, round_] = 1
            for user, since in enumerate(panel["exposed"]):
                if since is not None:
                    picture[user, since:] += 2
            axes.imshow(
                picture,
                cmap=ListedColormap(list(shades.values())),
                vmin=0,
                vmax=3,
                aspect="auto",
                interpolation="none",
                extent=(0.5, record["rounds"] + 0.5, record["users"] + 0.5, 0.5),
            )
            axes.set_title(panel["title"], loc="left")
            axes.set_xlabel("round")
        columns[0].set_ylabel("user")
        columns[0].figure.legend(
            handles=[Patch(color=colour, label=label) for label, colour in shades.items()],
            loc="outside lower center",
            ncols=len(shades),
        )


PUBLISHED = {  # the authors' stored data behind fig:key_metrics: T at the end, C, F over completed rounds
    "random": (1, 12, 0.143),
    "weighted": (1, 12, 0.010),
    "partition": (12, 1.19, 0.272),
    "T6": (6, 7.86, 0.118),
    "T4": (4, 11.71, 0.029),
    "T3": (3, 12.0, 0.016),
}


def measures() -> dict[str, Any]:
    """The paper's six schemes over 200 rounds, averaged over 200 draws of the users' dropout."""
    result = simulate(
        users=120,
        per_round=12,
        schemes=list(PUBLISHED),
        trials=200,
        availability=RedrawnDropout((0.1, 0.2, 0.3, 0.4, 0.5), users=120),
        seed=1,
        processes=os.cpu_count() or 1,
    )
    return result.record()


def measures_table(record: dict[str, Any]) -> str:
    """Return our measures beside the published ones, in Markdown."""
    lines = [
        "| scheme | T, worst trial | published | C (95 %) | published | F, completed rounds | published |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scheme in record["schemes"]:
        level, cardinality, gap = PUBLISHED[scheme["scheme"]]
        low, high = scheme["cardinality_interval"]
        lines.append(
            f"| {scheme['scheme']} | {scheme['strong']['low']} | {level} "
            f"| {scheme['cardinality']:.2f} ({low:.2f} to {high:.2f}) | {cardinality} "
            f"| {scheme['fairness_gap_completed']:.3f} | {gap:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Make every record again, and draw from it."""
    PICTURES.mkdir(exist_ok=True)
    for name, make, draw in (("idea", idea, exposure), ("measures", measures, key_metrics)):
        record = make()
        (PICTURES / f"{name}.json").write_text(json.dumps(record) + "\n")
        draw(record, PICTURES / f"{name}.svg")
        print(f"drew docs/pictures/{name}.svg")
    (PICTURES / "measures.md").write_text(measures_table(record))


if __name__ == "__main__":
    main()
