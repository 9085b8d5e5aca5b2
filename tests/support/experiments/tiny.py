"""A run that takes a second: 12 users with 20 real images each, a batch lost, a round skipped, in four rounds."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from coterie import secagg
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.spec import Spec
from coterie.lab.training import MNIST_SMALL, load

SEALED = list(secagg.PROTOCOLS)
PROTOCOLS = ["plain", *SEALED]
ROUNDS = 4
PRIVACY = 2
SEED = 28
"""In the second round a user is lost as it sends its vector; in the third too few users are available."""
OUTCOMES = ["committed", "committed", "skipped", "committed"]
MEMORY = Path("/dev/shm")  # noqa: S108 - every folder in it has a name of its own


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The tiny run's data, a file per user."""
    return write_data(tmp_path_factory.mktemp("users") / "data")


@pytest.fixture(scope="module")
def new_folder():
    """Give paths for new folders, in memory where the system offers it: a run writes much, and a disk is slow."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base:
        yield lambda: Path(tempfile.mkdtemp(dir=base)) / "run"


def write_data(folder, users=12, examples=20):
    """Write a folder with a file per user, and 200 images to test with; return the folder."""
    dataset, rng = load(MNIST_SMALL), np.random.default_rng(0)
    folder.mkdir()
    order = rng.permutation(len(dataset.train.labels))
    for user in range(users):
        _save(folder / f"user-{user:02d}.npz", dataset.train, order[user * examples :][:examples])
    _save(folder / "test.npz", dataset.test, rng.permutation(len(dataset.test.labels))[:200])
    return folder


def _save(file, examples, places):
    np.savez(file, images=examples.images[places].numpy(), labels=examples.labels[places].numpy())


def tiny_spec(data, protocol, **changes):
    """The spec of the tiny run; `training__rounds=9` changes training.rounds."""
    return Spec().changed(
        {
            "seed": SEED,
            "data.source": str(data),
            "data.users": 12,
            "selection.per_round": 6,
            "selection.scheme": f"T{PRIVACY}",
            "selection.dropout": [0.1, 0.2],
            "selection.lost": 0.06,
            "training.rounds": ROUNDS,
            "aggregation.protocol": protocol,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
    )


def finished(spec, folder):
    """Run a spec to its end; return the run, closed."""
    with Run.start(spec, folder) as run:
        for _ in run.steps():
            pass
    return run


def newest_parameters(folder):
    """The newest model in a run's folder, by layer."""
    with np.load(max((folder / "checkpoints").glob("*.npz"))) as file:
        return {name: file[name] for name in file.files if not name.startswith("/")}


def told(rows):
    """Rows without what differs from run to run: the time, and the ledger's numbers, which crashes use up."""
    return [{**vars(row), "seconds": 0, "round": 0} for row in rows]


def write_spec(spec, file):
    """Write a spec as TOML; return the file."""
    lines = []
    for name, value in sorted(spec.tables().items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            lines += [f"[{name}]", *(f"{key} = {_toml(each)}" for key, each in value.items())]
        else:
            lines.append(f"{name} = {_toml(value)}")
    file.write_text("\n".join(lines))
    return file


def _toml(value):
    """A value as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
