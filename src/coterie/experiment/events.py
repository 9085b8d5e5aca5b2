"""A run's rounds as TensorBoard event files."""

from collections.abc import Iterable
from pathlib import Path

from coterie.errors import UsageError
from coterie.experiment.record import RoundRow

SCALARS = (
    "training_loss",
    "accuracy",
    "loss",
    "strong",
    "fairness_gap",
    "cardinality",
    "included",
    "lost_batches",
)


class EventFiles:
    """Writes rounds to a folder that TensorBoard reads: first those that a resumed run already has.

    What the stopped run wrote there is taken back, so that every round is there once, and none is missing.
    """

    def __init__(self, folder: Path, rows: Iterable[RoundRow]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("--tensorboard needs the package tensorboard; install coterie[tensorboard]") from None
        self._writer = SummaryWriter(str(folder), purge_step=0)
        for row in rows:
            self.add(row)

    def add(self, row: RoundRow) -> None:
        """Write one round."""
        for name in SCALARS:
            value = getattr(row, name)
            if value is not None:
                self._writer.add_scalar(name, value, row.round)
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        self._writer.close()
