"""What the tests of runs share: the data of the tiny run, and folders in memory."""

import tempfile
from pathlib import Path

import pytest

from experiment.tiny import write_data

MEMORY = Path("/dev/shm")  # noqa: S108 - every folder in it has a name of its own


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The tiny run's data, a file per user."""
    return write_data(tmp_path_factory.mktemp("federation") / "data")


@pytest.fixture(scope="module")
def new_folder():
    """Give paths for new folders, in memory where the system offers it: a run writes much, and a disk is slow."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base:
        yield lambda: Path(tempfile.mkdtemp(dir=base)) / "run"
