"""Work whose writing calls are recorded, with marks where it may count on what it did; for disk_calls.c.

Called under the preloaded library with the kind of work, and for each time that it is to be done a new folder to
do it in and a file for the record; for a run also the file of its spec. A mark says what the world outside has
seen by then, so that nothing may undo it: `stored …` that a file or record has this content, `head …` a ledger's
head, `sealed USER ROUND` that a device's vector has left it.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

from coterie import BatchPlan, Cohort
from coterie.federation.device_file import DeviceFile
from coterie.federation.ledger import Ledger
from coterie.files import atomic_write

SHIM = ctypes.CDLL(None)


def mark(text):
    """Say in the record what is known outside from here on."""
    SHIM.mark(text.encode())


def content(number):
    """What is stored the n-th time: longer than some blocks, and of a length that is a multiple of none."""
    return bytes([number]) * (3000 + 2500 * (number % 3))


def files(folder):
    """Write a file several times."""
    for number in range(1, 5):
        with atomic_write(folder / "file") as file:
            file.write(content(number))
        mark(f"stored {number}")


def device(folder):
    """Store a device's record several times."""
    with DeviceFile.create(folder / "device", b"secret") as memory:
        mark("stored 0")
        for number in range(1, 6):
            with memory.transaction("photos") as slot:
                slot.content = content(number)
            mark(f"stored {number}")


def ledger(folder):
    """Run rounds on a ledger."""
    cohort = Cohort(np.arange(2), batches=np.array([0]))
    with Ledger.create(folder, clock=lambda: 0) as book:
        mark(f"head {book.head.hash.hex()}")
        for work in (
            lambda: book.enrol([f"user {number}" for number in range(40)]),
            lambda: book.publish_plan(BatchPlan.from_batches(4, 2, [[0, 1], [2, 3]])),
            lambda: book.bind({f"file {number}": f"{number:064x}" for number in range(60)}),
        ):
            work()
            mark(f"head {book.head.hash.hex()}")
        with book.claim():
            for _ in range(2):
                round_ = book.open_round(cohort, sealed=True, protocol="open")
                mark(f"head {book.head.hash.hex()}")
                book.commit_round(round_, [[0, 1]])
                mark(f"head {book.head.hash.hex()}")


def record(folder):
    """Add rows to a run's record; every second one crosses the border of a block."""
    from coterie.lab.experiments.folder import RecordFile

    lines = RecordFile(folder / "record.jsonl")
    lines.start(HEAD)
    mark("stored 0")
    for number in range(1, 6):
        lines.add(row(number))
        mark(f"stored {number}")


HEAD = {"spec": {}, "seed": 1, "users": 2, "parameters": 3, "aggregation": "plain"}


def row(number):
    """The n-th row of a record."""
    from coterie.lab.experiments.folder import RoundRow

    counts = dict.fromkeys(("available", "asked", "included", "lost_batches", "strong", "skipped"), 2)
    measures = dict.fromkeys(("fairness_gap", "fairness_gap_completed", "cardinality", "seconds"), 0.5)
    lacking = dict.fromkeys(("training_loss", "accuracy", "loss"))
    return RoundRow(step=number, round=number, outcome="committed", **counts, **measures, **lacking)


def run(folder, spec):
    """Do a whole run; every vector that leaves a device is marked, and every head that a step leaves."""
    from coterie.lab.experiments.run import Run
    from coterie.lab.experiments.spec import Spec

    undo = mark_seals(lambda user, round_: mark(f"sealed {user} {round_}"))
    with Run.start(Spec.read(Path(spec)), folder / "run", workers=1) as whole:
        mark(f"head {whole.ledger.head.hash.hex()}")
        for _ in whole.steps():
            mark(f"head {whole.ledger.head.hash.hex()}")
    undo()


def mark_seals(told):
    """Tell of every vector that a device seals, when it is about to leave; return what undoes that."""
    from coterie.secagg import SealedClient

    real = SealedClient.seal

    def seal(self, task, *arguments, **named):
        vector = real(self, task, *arguments, **named)
        told(self.user, task.round)
        return vector

    SealedClient.seal = seal

    def undo():
        SealedClient.seal = real

    return undo


if __name__ == "__main__":
    works = {"files": files, "device": device, "ledger": ledger, "record": record, "run": run}
    work, times = works[sys.argv[1]], sys.argv[2:]
    each = 3 if work is run else 2
    for start in range(0, len(times), each):
        place, calls, *arguments = times[start : start + each]
        SHIM.record_to(calls.encode())
        Path(place).mkdir()
        work(Path(place), *arguments)
        SHIM.record_to(None)
