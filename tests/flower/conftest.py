"""What the tests of the package for Flower have in common."""

import pytest

from support.flower.nodes import in_a_task


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    in_a_task(monkeypatch)
