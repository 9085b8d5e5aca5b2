"""A run: the coordinator driven to the end, with nothing lost if the process dies at any instant.

A step is: cohort, training, aggregation; the mean set aside on the disk; the ledger's commit, with the digest of
that; the model moved on and checkpointed; the ledger's note of the checkpoint's digest and the row's; the record's
row. Wherever it was cut off, the ledger says how far it came, and `resume` goes on: a checkpoint that the ledger
does not know is made again, a row that is missing is in the checkpoint.
"""

import math
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from coterie import __version__
from coterie.errors import UsageError
from coterie.federation.coordinator import Aggregation, Coordinator, RoundOutcome
from coterie.federation.ledger import Ledger, Round, Snapshot, State
from coterie.files import FileLock
from coterie.lab.experiments.folder import (
    AGGREGATE,
    DATA,
    HEAD,
    MODEL,
    RECORD,
    RESULT,
    ROW,
    Checkpoint,
    ModelParameters,
    PendingResult,
    RoundRow,
    RunFolder,
    RunRecord,
    check_files,
    extend,
    progress_of,
    read_checked,
    read_record,
)
from coterie.lab.experiments.plain import PlainAggregation, TrainingNotes
from coterie.lab.experiments.setup import Setup, prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.training.models import flatten
from coterie.lab.training.published import Progress, no_progress
from coterie.lab.training.trainer import evaluate
from coterie.leakage.measures import RunningMeasures
from coterie.values import BoolArray

if TYPE_CHECKING:  # the cryptography is needed only by runs that use it
    from coterie.lab.experiments.users import SimulatedFederation


class Run:
    """One run in its folder: `start` a new one or `resume` an old one, go through its `steps`, then `close` it.

    While it is open the folder belongs to this process alone; a second one is refused, and told who has it.
    """

    def __init__(self, folder: RunFolder, lock: FileLock, setup: Setup, ledger: Ledger) -> None:
        """Not for callers: `start` and `resume` see to it that the folder and the ledger are there."""
        self.folder, self.setup, self.ledger = folder, setup, ledger
        self._lock = lock
        self.spec = setup.spec
        self.parameters = flatten(setup.model).to(setup.trainer.device)
        self.measures = RunningMeasures(setup.user_data.users)
        self.rows: list[RoundRow] = []
        self._coordinator = Coordinator(ledger, setup.selector_for, self.spec.seed)
        self._federation = self._open_federation()

    @classmethod
    def start(
        cls, spec: Spec, path: Path, progress: Progress = no_progress, *, workers: int | None = None
    ) -> "Run":
        """Begin a run in a new folder; `workers` are as in `prepare`."""
        setup = prepare(spec, progress, workers)
        folder = RunFolder.create(path)
        with ExitStack() as stack:
            lock = stack.enter_context(folder.lock())
            ledger = stack.enter_context(Ledger.create(folder.ledger))
            keys = None
            if not spec.aggregation.plain:
                from coterie.lab.experiments.users import make_devices

                keys = make_devices(folder.devices, setup.user_data.users)
            ledger.enrol(setup.names, keys)
            if setup.plan is not None:
                ledger.publish_plan(setup.plan)
            run = cls(folder, lock, setup, ledger)
            if run._federation is not None and spec.aggregation.sealed:
                run._federation.form_batches()
            model = folder.save(Checkpoint(0, run._named_parameters(), None))
            head = folder.record.start(run._head())
            # Last: a ledger that is bound to these is one whose run can be resumed.
            ledger.bind({HEAD: head, DATA: setup.data_digest, MODEL: model})
            stack.pop_all()
        return run

    @classmethod
    def resume(
        cls,
        path: Path,
        progress: Progress = no_progress,
        *,
        workers: int | None = None,
        rounds: int | None = None,
    ) -> "Run":
        """Take up a run where it stopped, whatever stopped it; refuse one of which a file was changed.

        `rounds` extends it to so many in all, as if it had been begun with them.
        """
        folder = RunFolder.open(path)
        with ExitStack() as stack:
            lock = stack.enter_context(folder.lock())
            folder.remove_unfinished()
            ledger = stack.enter_context(Ledger.open(folder.ledger))
            record, snapshot = read_checked(folder, ledger)
            check_files(folder, snapshot)
            original = Spec.from_tables(record.head["spec"], str(folder.record.path))
            spec = original if rounds is None else _with_rounds(original, rounds, path)
            setup = prepare(spec, progress, workers)
            if setup.data_digest != snapshot.files[DATA]:
                raise UsageError(
                    f"the data of {spec.data.source} are not those that the run in {path} began with; put them "
                    f"back, or start a new run"
                )
            run = cls(folder, lock, setup, ledger)
            run._check_devices(snapshot)
            run._catch_up(record, snapshot)
            if spec != original:
                extend(folder, ledger, record.head | {"spec": spec.tables()}, spec.training.rounds)
            stack.pop_all()
        return run

    def close(self) -> None:
        """Let go of the folder."""
        self.ledger.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _catch_up(self, record: RunRecord, snapshot: Snapshot) -> None:
        """Bring model, measures and record to where the ledger is."""
        progress = progress_of(self.folder, snapshot)
        step = len(progress.steps)
        newest = progress.steps[-1] if progress.steps else snapshot
        checkpoint = self.folder.checkpoint(step, newest.files[MODEL])
        self._take_parameters(checkpoint.parameters)
        self.folder.record.repair()
        self.rows = list(record.rows)
        if len(self.rows) < step - 1:
            raise UsageError(f"{self.folder.record.path} lacks rows: the ledger has {step} rounds; put it back")
        if checkpoint.row is not None and len(self.rows) < step:
            self._add(checkpoint.row)
        for round_ in progress.steps:
            self.measures.add_round(round_.exposure)
        if progress.cut_off is None:
            self.folder.tidy(step)
        else:
            self._finish_cut_off(progress.cut_off, step)

    def _take_parameters(self, parameters: ModelParameters) -> None:
        expected = {name: part.shape for name, part in self._named_parameters().items()}
        if {name: part.shape for name, part in parameters.items()} != expected:
            raise UsageError(
                f"a checkpoint in {self.folder.path} has other layers than the model {self.spec.training.model}; "
                f"put the right one there"
            )
        layout = self.setup.trainer.layout
        vector = layout.join({name: torch.from_numpy(each) for name, each in parameters.items()})
        self.parameters = vector.to(self.setup.trainer.device)

    def _check_devices(self, snapshot: Snapshot) -> None:
        """Refuse to go on where devices and ledger are of different times: one of them is an older copy."""
        if self._federation is None or not self.spec.aggregation.sealed:
            return
        sealed = self._federation.sealed_rounds()
        if sealed.max() >= snapshot.next_round:
            raise UsageError(
                f"a device of {self.folder.path} has sealed round {sealed.max()}, and the ledger knows only "
                f"rounds below {snapshot.next_round}: the ledger is an older copy, by which rounds would be "
                f"counted wrongly; put the newest one there"
            )
        included = np.full(snapshot.users, -1, dtype=np.int64)
        for round_ in snapshot.rounds:
            included[round_.included] = round_.number
        behind = np.flatnonzero(sealed < included)
        if len(behind):
            user = int(behind[0])
            raise UsageError(
                f"the device of {snapshot.names[user]} has sealed nothing after round {sealed[user]}, and its "
                f"update is in round {included[user]}: its file was put back to an older copy, which could seal a "
                f"round twice; start a new run"
            )

    @property
    def done(self) -> bool:
        """Whether all rounds have been run."""
        return len(self.rows) >= self.spec.training.rounds

    def steps(self) -> Iterator[RoundRow]:
        """Run the rounds that are left, and yield each one's row when it is safely on the disk."""
        online = self.setup.world.available(len(self.rows))
        while not self.done:
            yield self._step(next(online))

    def _step(self, available: BoolArray) -> RoundRow:
        started, notes = time.perf_counter(), TrainingNotes()
        pending: PendingResult | None = None

        def set_aside(outcome: RoundOutcome) -> dict[str, str]:
            """Have a round's result on the disk before the ledger commits the round."""
            nonlocal pending
            if outcome.mean is None:
                return {}
            diverged = tuple(self.setup.names[user] for user in sorted(notes.diverged))
            loss = notes.mean_loss(outcome.included)
            pending = PendingResult(outcome.round, outcome.mean, loss, tuple(outcome.liars), diverged)
            return {RESULT: self.folder.set_aside(pending)}

        aggregation: Aggregation
        if self._federation is None:
            aggregation = PlainAggregation(self.setup, self.parameters, len(self.rows), notes)
        else:
            aggregation = self._federation.aggregation(self.parameters, len(self.rows), notes)
        outcome = self._coordinator.run_round(available, aggregation, set_aside, step=len(self.rows))
        return self._finish(outcome, int(available.sum()), pending, started)

    def _finish_cut_off(self, round_: Round, step: int) -> None:
        """Do what is left of a step whose round ended, but whose checkpoint is missing."""
        started, pending = time.perf_counter(), None
        if round_.state is State.COMMITTED:
            pending = self.folder.pending(round_.number, round_.files.get(RESULT, ""))
        outcome = RoundOutcome.on_record(round_, None if pending is None else pending.mean)
        available = next(self.setup.world.available(step))
        self._finish(outcome, int(available.sum()), pending, started)

    def _finish(
        self, outcome: RoundOutcome, available: int, pending: PendingResult | None, started: float
    ) -> RoundRow:
        """Move the model on, and write down what a step gave: checkpoint, ledger, record, in this order."""
        files = {}
        if outcome.mean is not None:
            self.parameters = self.parameters + torch.from_numpy(outcome.mean).to(self.parameters)
            if self.spec.keep_aggregates:
                step = len(self.rows) + 1
                files[AGGREGATE] = self.folder.keep_aggregate(step, outcome.mean, outcome.included)
        self.measures.add_round(outcome.exposure)
        row = self._row(outcome, available, pending, started)
        files |= {MODEL: self.folder.save(Checkpoint(row.step, self._named_parameters(), row)), ROW: row.digest}
        tested = (("accuracy", row.accuracy), ("loss", row.loss))
        self.ledger.note(outcome.round, {name: value for name, value in tested if value is not None}, files)
        self._add(row)
        self.folder.tidy(row.step)
        return row

    def _row(
        self, outcome: RoundOutcome, available: int, pending: PendingResult | None, started: float
    ) -> RoundRow:
        step, now = len(self.rows) + 1, self.measures.now
        measure = step % self.spec.evaluate_every == 0 or step == self.spec.training.rounds
        setup, tested = self.setup, None
        if measure:
            tested = evaluate(setup.model, self.parameters, setup.user_data, workers=setup.trainer.workers)
        return RoundRow(
            step=step,
            round=outcome.round,
            outcome=str(outcome.state),
            available=available,
            asked=0 if outcome.cohort is None else len(outcome.cohort),
            included=len(outcome.included),
            lost_batches=len(outcome.lost),
            training_loss=None if pending is None else pending.training_loss,
            accuracy=None if tested is None else tested.accuracy,
            loss=tested.loss if tested is not None and math.isfinite(tested.loss) else None,
            strong=now.strong,
            fairness_gap=now.fairness_gap,
            fairness_gap_completed=now.fairness_gap_completed,
            cardinality=now.cardinality,
            skipped=now.skipped,
            seconds=round(time.perf_counter() - started, 4),
            liars=() if pending is None else pending.liars,
            diverged=() if pending is None else pending.diverged,
        )

    def _add(self, row: RoundRow) -> None:
        self.folder.record.add(row)
        self.rows.append(row)

    def _open_federation(self) -> "SimulatedFederation | None":
        if self.spec.aggregation.plain:
            return None
        from coterie.lab.experiments.users import SimulatedFederation

        return SimulatedFederation(self.folder.devices, self.ledger, self.setup)

    def _named_parameters(self) -> dict[str, NDArray[np.float32]]:
        layout = self.setup.trainer.layout
        return {name: value.cpu().numpy() for name, value in layout.split(self.parameters).items()}

    def _head(self) -> dict[str, Any]:
        plan = self.setup.plan
        return {
            "spec": self.spec.tables(),
            "seed": self.spec.seed,
            "users": self.setup.user_data.users,
            "parameters": len(self.parameters),
            "privacy": None if plan is None else plan.privacy,
            "aggregation": self.spec.aggregation.protocol,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "chunk": self.setup.trainer.chunk,
            "device": str(self.setup.trainer.device),
            "versions": {
                "coterie": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
        }


def _with_rounds(spec: Spec, rounds: int, path: Path) -> Spec:
    """Return a run's spec with more rounds; refuse fewer, for what happened cannot be taken back."""
    if rounds < spec.training.rounds:
        raise UsageError(
            f"the run in {path} is one of {spec.training.rounds} rounds, and {rounds} are fewer; give more "
            "to extend it, or leave --rounds out"
        )
    return spec.changed({"training.rounds": rounds})


def start_or_resume(
    spec: Spec, folder: Path, progress: Progress = no_progress, *, workers: int | None = None
) -> Run:
    """Return the run of a spec in a folder, taken up where it stopped, or begun; refuse a run of another spec."""
    record = folder / RECORD
    if not record.is_file():
        return Run.start(spec, folder, progress, workers=workers)
    if Spec.from_tables(read_record(record).head["spec"], str(record)) != spec:
        raise UsageError(f"{folder} holds a run with other settings; give another folder with --out")
    return Run.resume(folder, progress, workers=workers)
