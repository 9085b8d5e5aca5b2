"""One spec run with several seeds, each in a folder of its own, so that a stopped series goes on where it was."""

from pathlib import Path

from coterie.errors import UsageError
from coterie.experiment.record import read_record
from coterie.experiment.run import Run
from coterie.experiment.spec import Spec
from coterie.training.data.fetch import Progress, no_progress


def seed_folder(series: Path, seed: int) -> Path:
    """Return where the run with a seed lives inside the folder of a series."""
    return series / f"seed-{seed}"


def run_of_seed(
    spec: Spec, series: Path, seed: int, progress: Progress = no_progress, *, workers: int | None = None
) -> Run:
    """Return the run of a spec with a seed: begun in the folder of the series, or taken up where it stopped."""
    seeded, folder = spec.changed({"seed": seed}), seed_folder(series, seed)
    record = folder / "record.jsonl"
    if not record.is_file():
        return Run.start(seeded, folder, progress, workers=workers)
    if Spec.from_tables(read_record(record).head["spec"], str(record)) != seeded:
        raise UsageError(f"{folder} holds a run with other settings; give another folder with --out")
    return Run.resume(folder, progress, workers=workers)
