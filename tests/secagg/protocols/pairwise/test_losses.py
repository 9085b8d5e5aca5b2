"""Three users in ten are lost at the dearest moment, and every round still has its sum."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture
def pairwise_losses(monkeypatch):
    """The benchmark that plays such rounds over the real graph."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import pairwise_losses

    return pairwise_losses


@pytest.mark.parametrize(("users", "rounds"), [(100, 300), (1000, 200), (10_000, 40)])
@pytest.mark.parametrize("group", [1, 10], ids=["unsealed", "sealed"])
def test_a_sum_comes_out_with_three_in_ten_lost(pairwise_losses, users, rounds, group):
    """Exactly ⌊0.3 n⌋ users lost after sharing, alone or in whole batches: each round can be opened."""
    result = pairwise_losses.losses(users, group, rounds)
    assert result["lost"] == 3 * users // 10
    assert result["sums"] == rounds
    assert result["fewest_shares_to_spare"] >= 0


def test_ten_thousand_rounds_were_played_of_each_kind(pairwise_losses):
    """The committed results are of 10 000 rounds each, with a sum in all of them, and of today's parameters."""
    results = json.loads((ROOT / "benchmarks" / "results" / "pairwise_losses.json").read_text())
    for users in (100, 1000, 10_000):
        neighbourhood = pairwise_losses.sparse_neighbourhood(users, pairwise_losses.PARAMETERS)
        for kind in ("unsealed", "sealed"):
            result = results[f"{users} users, {kind}"]
            assert result["rounds"] == result["sums"] == 10_000
            assert (result["degree"], result["shares_needed"]) == (
                neighbourhood.degree,
                neighbourhood.shares_needed,
            )
