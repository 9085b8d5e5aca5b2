"""What the golden files of plans and logs hold."""

from coterie import BatchPlan, LogBuilder

NAMES = ("ana", "bob, the 2nd", "Zoë", "d", "e")
PLAN = BatchPlan.from_batches(users=5, privacy=2, batches=[[0, 2], [1, 3, 4]], names=NAMES)


def _log():
    builder = LogBuilder(5, NAMES, first=3)
    builder.append([0, 2], [1, 3, 4])
    builder.append()
    builder.append([0, 1, 2, 3, 4])
    return builder.build()


LOG = _log()
"""Two learned sets in round 3, none in round 4, everybody in round 5."""
