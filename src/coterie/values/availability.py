"""`AvailabilityLog`: a record of who was online when."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.errors import UsageError
from coterie.values.arrays import BoolArray, FloatArray, checked_names


@dataclass(frozen=True, eq=False)
class AvailabilityLog:
    """Who was online in each of the recorded rounds: `online[round, user]`.

    >>> log = AvailabilityLog(np.array([[True, False], [True, True]]))
    >>> log.rounds, log.users, log.dropout.tolist()
    (2, 2, [0.0, 0.5])
    """

    online: BoolArray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = np.asarray(self.online)
        if given.dtype != np.bool_ and not np.isin(given, (0, 1)).all():
            raise UsageError("an availability log holds only 0 and 1, or False and True")
        online = given.astype(np.bool_)
        if online.ndim != 2 or 0 in online.shape:  # noqa: PLR2004 - rounds × users
            raise UsageError(f"an availability log has rounds and users, not the shape {online.shape}")
        online.flags.writeable = False
        object.__setattr__(self, "online", online)
        object.__setattr__(self, "names", checked_names(self.names, self.users))

    @property
    def rounds(self) -> int:
        """The number of recorded rounds."""
        return int(self.online.shape[0])

    @property
    def users(self) -> int:
        """The number of users."""
        return int(self.online.shape[1])

    @cached_property
    def dropout(self) -> FloatArray:
        """Each user's share of rounds in which it was not online."""
        dropout = np.asarray(1.0 - self.online.mean(axis=0), dtype=np.float64)
        dropout.flags.writeable = False
        return dropout

    def window(self, start: int, stop: int) -> "AvailabilityLog":
        """Return the recorded rounds `start` … `stop - 1` as a log of their own."""
        return AvailabilityLog(self.online[start:stop], self.names)
