"""The names that one would guess, below the package's own."""

import subprocess
import sys

import numpy as np
import pytest

import coterie


def test_every_name_is_there():
    """Each name of the package leads to something, and `dir` lists it."""
    assert all(getattr(coterie, name) is not None for name in coterie.__all__)
    assert set(coterie.__all__) <= set(dir(coterie))
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        coterie.plam  # noqa: B018


def test_a_call_brings_only_what_it_needs():
    """Planning imports no PyTorch, no ledger and nothing that draws."""
    code = (
        "import sys, coterie; coterie.plan(users=12, per_round=4, dropout=0.1); "
        "print({'torch', 'sqlite3', 'matplotlib'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "set()\n"


def test_results_show_themselves_and_give_columns():
    """A trade-off and a simulation are tables in a notebook, and arrays for a data frame."""
    trade_off = coterie.plan(users=24, per_round=6, dropout=[0.1, 0.4])
    result = coterie.simulate(users=24, per_round=6, dropout=[0.1, 0.4], rounds=5, trials=2)
    for each, rows in ((trade_off, len(trade_off.options)), (result, len(result.schemes))):
        assert each._repr_html_().count("<tr") == rows + 1
        columns = each.columns()
        assert {len(column) for column in columns.values()} == {rows}
        assert all(isinstance(column, np.ndarray) for column in columns.values())
    assert trade_off.plan.privacy == trade_off.recommended.privacy
    assert result.curve("random", "cardinality")[-1] == result.columns()["cardinality"][0]


def test_what_is_missing_is_asked_for():
    """Calls without users, or with two descriptions of their availability, say what they lack."""
    for call in (coterie.plan, coterie.simulate):
        with pytest.raises(coterie.UsageError, match="in one way"):
            call(users=12, per_round=4)
        with pytest.raises(coterie.UsageError, match="how many users"):
            call(per_round=4, dropout=0.1)
