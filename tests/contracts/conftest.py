"""Every test here runs on each database that a ledger can be kept in."""

import pytest

from support.ledgers import DATABASES


@pytest.fixture(params=DATABASES)
def location(request, tmp_path):
    """Where a ledger can be made: nothing is there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    from support.postgres import fresh_ledger

    return fresh_ledger(request.getfixturevalue("postgres"))
