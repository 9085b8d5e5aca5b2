"""Where the tests of the coordinator keep their ledgers."""

import tempfile
from pathlib import Path

import pytest

from coterie.federation.ledger import Ledger
from support.ledgers import DATABASES

MEMORY = Path("/dev/shm")  # noqa: S108 - every folder in it has a name of its own


@pytest.fixture(scope="module")
def new_folder():
    """Make empty folders, in memory where there is such a place: properties try many ledgers, disks are slow."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as base:
        yield lambda: Path(tempfile.mkdtemp(dir=base))


@pytest.fixture
def ledger(new_folder):
    """A ledger in which nobody is enrolled yet."""
    with Ledger.create(new_folder()) as ledger:
        yield ledger


@pytest.fixture(params=DATABASES)
def location(request, new_folder):
    """Where a ledger can be made, in each database: nothing is there yet."""
    if request.param == "sqlite":
        return str(new_folder() / "ledger.sqlite")
    from support.postgres import fresh_ledger

    return fresh_ledger(request.getfixturevalue("postgres"))
