"""What binds a run's files together: the ledger has a digest of each, and none counts that was changed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.errors import UsageError
from coterie.experiment.folder import RunFolder, changed
from coterie.experiment.record import RunRecord, head_digest, read_record
from coterie.ledger import Ledger, Round, Snapshot, State

HEAD, DATA, MODEL, ROW, RESULT, AGGREGATE = "head", "data", "model", "row", "result", "aggregate"
"""The names of files and parts of files in the ledger: the record's first line, all users' data, a checkpoint, a
row of the record, a result that was set aside, a mean update that was kept. A run that was extended to more rounds
has further heads, `head-200` for one of 200 rounds."""

STEP_STATES = (State.COMMITTED, State.ABANDONED, State.SKIPPED)
"""Rounds that are a step of the run; one that a crash left unfinished is tried again in a new round."""


@dataclass(frozen=True, eq=False)
class RunProgress:
    """How far a run came, by its ledger: the steps whose checkpoint counts, and one that may lack it."""

    steps: tuple[Round, ...]
    cut_off: Round | None

    @property
    def model(self) -> str:
        """The digest of the last checkpoint; empty before the first step."""
        return self.steps[-1].files[MODEL] if self.steps else ""


def progress_of(folder: RunFolder, snapshot: Snapshot) -> RunProgress:
    """Return how far a run came; refuse a ledger that is not a run's."""
    if not {HEAD, DATA, MODEL} <= snapshot.files.keys():
        raise UsageError(
            f"{folder.path} holds a run that was stopped before its first round; begin it anew in another folder"
        )
    ended = [each for each in snapshot.rounds if each.state in STEP_STATES]
    steps = tuple(each for each in ended if MODEL in each.files)
    if len(ended) - len(steps) > 1 or steps != tuple(ended[: len(steps)]):
        raise UsageError(f"{folder.ledger} is not the ledger of a run: rounds of it have no checkpoint")
    return RunProgress(steps, ended[-1] if len(ended) > len(steps) else None)


def checked_run(folder: RunFolder, ledger: Ledger) -> tuple[RunRecord, Snapshot]:
    """Read a run's record and ledger, and refuse them if a line is not the one whose digest the ledger has.

    Rows follow the ledger, and so does this: beside a run that goes on, the ledger is never behind the record.
    """
    path = folder.record.path
    record = read_record(path) if path.exists() else None
    ledger.refresh()
    snapshot = ledger.snapshot()
    progress = progress_of(folder, snapshot)
    if record is None:
        raise UsageError(f"{path} was removed; put it back: the ledger has a run of {len(progress.steps)} rounds")
    if record.digest not in _heads(snapshot):
        raise changed(path, ", line 1,")
    if len(record.rows) > len(progress.steps):
        raise changed(path, f", line {len(progress.steps) + 2},")
    for number, (row, round_) in enumerate(zip(record.rows, progress.steps, strict=False), start=2):
        if row.digest != round_.files.get(ROW):
            raise changed(path, f", line {number},")
    return record, snapshot


def extend(folder: RunFolder, ledger: Ledger, head: Mapping[str, Any], rounds: int) -> None:
    """Give a run more rounds: the ledger has the new head's digest first, then the record has the head.

    Between the two the record has its old head, which the ledger knows as well: the run can be extended again.
    """
    name, digest = f"{HEAD}-{rounds}", head_digest(head)
    if ledger.snapshot().files.get(name) != digest:
        ledger.bind({name: digest})
    folder.record.replace_head(dict(head))


def _heads(snapshot: Snapshot) -> set[str]:
    return {digest for name, digest in snapshot.files.items() if name == HEAD or name.startswith(f"{HEAD}-")}


def check_files(folder: RunFolder, snapshot: Snapshot) -> None:
    """Refuse a run of which a checkpoint or a mean update that is there was changed."""
    progress = progress_of(folder, snapshot)
    expected = {folder.checkpoint_file(0): snapshot.files[MODEL]}
    for step, round_ in enumerate(progress.steps, start=1):
        expected[folder.checkpoint_file(step)] = round_.files[MODEL]
        if AGGREGATE in round_.files:
            expected[folder.aggregate_file(step)] = round_.files[AGGREGATE]
    for path, digest in expected.items():
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # most checkpoints are dropped when the next one is there
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            raise changed(path)
