"""How the tables of a ledger came to be: numbered steps of SQL, a file for each step and kind of database.

`0001.sqlite.sql` and `0001.postgres.sql` make version 1. A new version adds files with the next number, and an
older ledger is brought up to date, in one transaction, when it is opened for writing.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable

from coterie.errors import UsageError

FOLDER: Traversable = files(__name__)


def steps(kind: str, folder: Traversable | None = None) -> list[str]:
    """Return the SQL of all steps; step n, counted from 1, makes version n.

    >>> [sql.startswith("-- ") for sql in steps("sqlite")]
    [True]
    """
    found = sorted(
        (entry for entry in (folder or FOLDER).iterdir() if entry.name.endswith(f".{kind}.sql")),
        key=lambda entry: entry.name,
    )
    return [entry.read_text(encoding="utf-8") for entry in found]


def missing_steps(kind: str, version: int, place: str) -> list[str]:
    """Return the steps that a ledger of some version lacks; refuse one that a later Coterie wrote."""
    known = steps(kind)
    if not 1 <= version <= len(known):
        raise UsageError(
            f"{place} has the version {version}; this Coterie knows versions 1 to {len(known)}: use the one that "
            f"wrote it"
        )
    return known[version:]
