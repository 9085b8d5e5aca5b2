"""Older ledgers are brought up to date; newer ones are refused. Only tests know a version 2."""

import shutil

import pytest

from coterie import UsageError
from coterie.federation.ledger import Ledger, store
from coterie.federation.ledger.ledger import verify
from support.ledgers import DATABASES, database, federation, known

SECOND = {
    "sqlite": "-- Who.\nALTER TABLE record ADD COLUMN origin TEXT;\nCREATE INDEX kinds ON record (kind);\n",
    "postgres": "ALTER TABLE record ADD COLUMN origin text;\nCREATE INDEX kinds ON record (kind);\n",
}


@pytest.fixture(params=DATABASES)
def location(request, tmp_path):
    """A ledger of version 1."""
    if request.param == "sqlite":
        place = str(tmp_path / "ledger.sqlite")
    else:
        from support.postgres import fresh_ledger

        place = fresh_ledger(request.getfixturevalue("postgres"))
    federation(place).close()
    return place


@pytest.fixture
def later(tmp_path, monkeypatch):
    """Make the steps to version 2 known."""

    def make(second=SECOND):
        folder = tmp_path / "migrations"
        shutil.copytree(store.MIGRATIONS, folder)
        for kind, sql in second.items():
            (folder / f"0002.{kind}.sql").write_text(sql)
        monkeypatch.setattr(store, "MIGRATIONS", folder)

    return make


def test_an_older_ledger_is_brought_up_to_date(location, later):
    """Opening it for writing takes the missing step; nothing that it knew changes, and it goes on."""
    with Ledger.open(location) as ledger:
        before = known(ledger)
    later()
    with pytest.raises(UsageError, match="of an older Coterie; open it once for writing"):
        Ledger.open(location, read_only=True)
    with Ledger.open(location) as ledger:
        assert known(ledger) == before
        ledger.enrol(["new"])
    with database(location) as run:
        assert run("SELECT count(*) FROM record WHERE origin IS NULL") == [(ledger.head.count,)]
    with Ledger.open(location, read_only=True) as ledger:
        assert ledger.users == 13
    assert verify(location).sound


def test_a_newer_ledger_is_refused(location, later, monkeypatch):
    """This Coterie does not know what a later one meant."""
    later()
    Ledger.open(location).close()
    monkeypatch.undo()
    for read_only in (True, False):
        with pytest.raises(UsageError, match="has the version 2; this Coterie knows versions up to 1"):
            Ledger.open(location, read_only=read_only)


def test_a_step_that_fails_leaves_the_version_before(location, later, monkeypatch):
    """All statements of a step happen or none; the ledger is what it was."""
    later({kind: sql + "INSERT INTO missing VALUES (1);\n" for kind, sql in SECOND.items()})  # noqa: S608 - ours
    with pytest.raises(UsageError):
        Ledger.open(location)
    monkeypatch.undo()
    assert verify(location).sound
    with database(location) as run, pytest.raises(Exception, match="origin"):
        run("SELECT origin FROM record")


def test_every_step_is_there_for_both_databases():
    """The numbers run without a gap, and are the same for both."""
    names = sorted(entry.name for entry in store.MIGRATIONS.iterdir() if entry.name.endswith(".sql"))
    count = len(store.migrations("sqlite"))
    assert names == [f"{n:04}.{kind}.sql" for n in range(1, count + 1) for kind in ("postgres", "sqlite")]
