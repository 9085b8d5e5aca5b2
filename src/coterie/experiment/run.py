"""A run: the coordinator driven to the end, with nothing lost if the process dies at any instant.

A step is: cohort, training, aggregation; the mean set aside on the disk; the ledger's commit; the model moved on
and checkpointed; the record's row. Wherever it was cut off, the ledger says how far it came, and `resume` goes on.
"""

import math
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie import __version__
from coterie.audit.measures import RunningMeasures
from coterie.audit.strong import strong_level
from coterie.coordinator import Aggregation, Coordinator, Gathered, Outcome
from coterie.errors import UsageError
from coterie.experiment.folder import Checkpoint, Pending, RunFolder
from coterie.experiment.parts import Parts, prepare
from coterie.experiment.plain import PlainAggregation
from coterie.experiment.record import RoundRow, read_record
from coterie.experiment.spec import Spec
from coterie.ledger import Ledger, Round, State
from coterie.training.data.fetch import Progress, no_progress
from coterie.training.engine.vector import flatten
from coterie.training.evaluate import Evaluation, evaluate
from coterie.values import BoolArray

if TYPE_CHECKING:  # the cryptography is needed only by runs that use it
    from coterie.experiment.secure import SimulatedFederation


ENDED = (State.COMMITTED, State.ABANDONED, State.SKIPPED)
"""Rounds that are a step of the run; one that a crash left unfinished is tried again in a new round."""


class Run:
    """One run in its folder: `start` a new one or `resume` an old one, then go through its `steps`."""

    def __init__(self, folder: RunFolder, parts: Parts, ledger: Ledger) -> None:
        """Not for callers: `start` and `resume` see to it that the folder and the ledger are there."""
        self.folder, self.parts, self.ledger = folder, parts, ledger
        self.spec = parts.spec
        self.parameters = flatten(parts.model).to(parts.trainer.device)
        self.measures = RunningMeasures(parts.user_data.users)
        self.rows: list[RoundRow] = []
        self._losses: dict[int, float] = {}  # of the users that trained in the present step
        self._coordinator = Coordinator(ledger, parts.selector_for, self.spec.seed)
        self._federation = self._open_federation()

    @classmethod
    def start(
        cls, spec: Spec, path: Path, progress: Progress = no_progress, *, workers: int | None = None
    ) -> "Run":
        """Begin a run in a new folder; `workers` are as in `prepare`."""
        parts = prepare(spec, progress, workers)
        folder = RunFolder.create(path)
        ledger = Ledger.create(folder.ledger)
        keys = None
        if spec.aggregation.protocol != "plain":
            from coterie.experiment.secure import make_devices

            keys = make_devices(folder.devices, parts.user_data.users)
        ledger.enrol(parts.names, keys)
        if parts.plan is not None:
            ledger.publish_plan(parts.plan)
        run = cls(folder, parts, ledger)
        if run._federation is not None and spec.aggregation.sealed:
            run._federation.found()
        folder.save(Checkpoint(0, run._named_parameters(), None))
        folder.record.start(run._head())  # last: a folder with a record is one that can be resumed
        return run

    @classmethod
    def resume(cls, path: Path, progress: Progress = no_progress, *, workers: int | None = None) -> "Run":
        """Take up a run where it stopped, whatever stopped it; `workers` are as in `prepare`."""
        folder = RunFolder.open(path)
        head = read_record(folder.record.path).head
        spec = Spec.from_tables(head["spec"], str(folder.record.path))
        run = cls(folder, prepare(spec, progress, workers), Ledger.open(folder.ledger))
        run._catch_up(folder.latest())
        return run

    def _catch_up(self, checkpoint: Checkpoint) -> None:
        """Bring model, measures and record to where the ledger is: at most one step ahead of the checkpoint."""
        step, told = checkpoint.step, len(read_record(self.folder.record.path).rows)
        ended = [round_ for round_ in self.ledger.rounds() if round_.state in ENDED]
        if not (step - 1 <= told <= step <= len(ended) <= step + 1):
            raise UsageError(
                f"{self.folder.path} does not fit together: its ledger has {len(ended)} rounds, its record {told} "
                f"and its checkpoint {step}; a file of it was replaced"
            )
        layout = self.parts.trainer.layout
        self.parameters = layout.join({name: torch.from_numpy(a) for name, a in checkpoint.parameters.items()})
        self.parameters = self.parameters.to(self.parts.trainer.device)
        self.rows = list(self.folder.record.cut(step).rows)
        if checkpoint.row is not None and told < step:
            self._add(checkpoint.row)
        for round_ in ended[:step]:
            self.measures.add_round(round_.learned)
        if len(ended) > checkpoint.step:
            self._finish_cut_off(ended[-1], checkpoint.step)

    @property
    def done(self) -> bool:
        """Whether all rounds have been run."""
        return len(self.rows) >= self.spec.training.rounds

    def steps(self) -> Iterator[RoundRow]:
        """Run the rounds that are left, and yield each one's row when it is safely on the disk."""
        online = self.parts.world.available(len(self.rows))
        while not self.done:
            yield self._step(next(online))

    def _step(self, available: BoolArray) -> RoundRow:
        started = time.perf_counter()
        aggregation = self._aggregation()
        outcome = self._coordinator.run_round(available, aggregation, self._set_aside, step=len(self.rows))
        loss = None if outcome.mean is None else self._training_loss(outcome.gathered)
        return self._finish(outcome, int(available.sum()), loss, started)

    def _set_aside(self, round_: int, gathered: Gathered) -> None:
        """Have a round's result on the disk before the ledger commits the round."""
        if gathered.mean is not None:
            self.folder.set_aside(Pending(round_, gathered.mean, self._training_loss(gathered)))

    def _training_loss(self, gathered: Gathered) -> float:
        included = np.concatenate(gathered.learned).tolist()
        return float(np.mean([self._losses[user] for user in included]))

    def _finish_cut_off(self, round_: Round, step: int) -> None:
        """Do what is left of a step whose round ended, but whose checkpoint is missing."""
        started = time.perf_counter()
        pending = self.folder.pending()
        mean, loss = None, None
        if round_.state is State.COMMITTED:
            if pending is None or pending.round != round_.number:
                raise UsageError(
                    f"{self.folder.path} lacks the result of round {round_.number}; a file was removed"
                )
            mean, loss = pending.mean, pending.training_loss
        gathered = Gathered(round_.learned, mean, round_.lost)
        outcome = Outcome(round_.number, str(round_.state), round_.reason, round_.cohort, gathered)
        available = next(self.parts.world.available(step))
        self._finish(outcome, int(available.sum()), loss, started)

    def _finish(self, outcome: Outcome, available: int, loss: float | None, started: float) -> RoundRow:
        """Move the model on, and write down what a step gave: checkpoint, record, ledger, in this order."""
        if outcome.mean is not None:
            self.parameters = self.parameters + torch.from_numpy(outcome.mean).to(self.parameters)
            if self.spec.keep_aggregates:
                users = np.concatenate(outcome.gathered.learned)
                self.folder.keep_aggregate(len(self.rows) + 1, outcome.mean, users)
        self.measures.add_round(outcome.gathered.learned)
        row = self._row(outcome, available, loss, started)
        digest = self.folder.save(Checkpoint(row.step, self._named_parameters(), row))
        self._add(row)
        self.ledger.checkpoint(outcome.round, "model", digest)
        tested = {"accuracy": row.accuracy, "loss": row.loss}
        known = {name: value for name, value in tested.items() if value is not None}
        if known:
            self.ledger.note(outcome.round, known)
        return row

    def _row(self, outcome: Outcome, available: int, loss: float | None, started: float) -> RoundRow:
        step, now = len(self.rows) + 1, self.measures.now
        wanted = step % self.spec.evaluate_every == 0 or step == self.spec.training.rounds
        tested = self._tested() if wanted else None
        return RoundRow(
            step=step,
            round=outcome.round,
            outcome=outcome.kind,
            available=available,
            asked=0 if outcome.cohort is None else len(outcome.cohort),
            included=outcome.included,
            lost_batches=len(outcome.gathered.lost),
            training_loss=loss,
            accuracy=None if tested is None else tested.accuracy,
            loss=tested.loss if tested is not None and math.isfinite(tested.loss) else None,
            strong=now.strong,
            fairness_gap=now.fairness_gap,
            fairness_gap_completed=now.fairness_gap_completed,
            cardinality=now.cardinality,
            skipped=now.skipped,
            seconds=round(time.perf_counter() - started, 4),
        )

    def _tested(self) -> Evaluation:
        parts = self.parts
        return evaluate(parts.model, self.parameters, parts.user_data, workers=parts.trainer.workers)

    def _add(self, row: RoundRow) -> None:
        self.folder.record.add(row)
        self.rows.append(row)

    def _aggregation(self) -> Aggregation:
        step = len(self.rows)
        self._losses.clear()
        if self._federation is not None:
            return self._federation.aggregation(self.parameters, step)
        return PlainAggregation(self.parts, self.parameters, step, self._losses)

    def _open_federation(self) -> "SimulatedFederation | None":
        if self.spec.aggregation.protocol == "plain":
            return None
        from coterie.experiment.secure import SimulatedFederation

        return SimulatedFederation(self.folder.devices, self.ledger, self.parts, self._losses)

    def _named_parameters(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: part.cpu().numpy() for name, part in self.parts.trainer.layout.split(self.parameters).items()
        }

    def _head(self) -> dict[str, Any]:
        plan = self.parts.plan
        return {
            "spec": self.spec.tables(),
            "seed": self.spec.seed,
            "users": self.parts.user_data.users,
            "parameters": len(self.parameters),
            "privacy": None if plan is None else plan.privacy,
            "aggregation": self.spec.aggregation.protocol,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "chunk": self.parts.trainer.chunk,
            "device": str(self.parts.trainer.device),
            "versions": {
                "coterie": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
        }

    def level(self) -> int | None:
        """Return the strong privacy level of the ledger's log; None if a round's learned set is unknown."""
        return None if self.ledger.unknown_rounds else strong_level(self.ledger.log())

    def summary(self) -> dict[str, Any]:
        """Return what came out, in one object."""
        tested = next((row for row in reversed(self.rows) if row.accuracy is not None), None)
        now = self.measures.now
        return {
            "out": str(self.folder.path),
            "rounds": len(self.rows),
            "skipped": now.skipped,
            "lost_batches": sum(row.lost_batches for row in self.rows),
            "accuracy": None if tested is None else tested.accuracy,
            "loss": None if tested is None else tested.loss,
            "strong": self.level(),
            "cardinality": now.cardinality,
            "fairness_gap": now.fairness_gap,
            "seconds": round(sum(row.seconds for row in self.rows), 3),
        }
