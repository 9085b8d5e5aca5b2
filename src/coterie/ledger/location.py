"""Where a ledger is: a file, a run's folder, or a PostgreSQL URL."""

import os
from pathlib import Path
from typing import TypeAlias

from coterie.ledger.interface import Record, Store
from coterie.ledger.sqlite import SqliteStore

Location: TypeAlias = str | os.PathLike[str]

FILE = "ledger.sqlite"
"""The name of the ledger in a run's folder."""


def create_store(location: Location, first: Record) -> Store:
    """Make a new store that holds the first record."""
    if is_url(location):
        from coterie.ledger.postgres import PostgresStore

        return PostgresStore.create(str(location), first)
    return SqliteStore.create(_file(location), first)


def open_store(location: Location, *, read_only: bool) -> Store:
    """Open the store at a location."""
    if is_url(location):
        from coterie.ledger.postgres import PostgresStore

        return PostgresStore.open(str(location), read_only=read_only)
    return SqliteStore.open(_file(location), read_only=read_only)


def is_url(location: Location) -> bool:
    """Return whether a location is a PostgreSQL URL.

    >>> is_url("postgresql://ana@host/federation?ledger=photos"), is_url("runs/1")
    (True, False)
    """
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://"))


def _file(location: Location) -> Path:
    path = Path(location)
    return path / FILE if path.is_dir() else path
