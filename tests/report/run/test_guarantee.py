"""The words about a run say what it guarantees, and never more."""

from dataclasses import replace

import pytest

from coterie.report.run.guarantee import Facts, answer, assumptions, guaranteed, not_guaranteed

SEALED = Facts(
    users=120,
    rounds=60,
    learned=60,
    level=6,
    demanded=6,
    split=0,
    unfinished=0,
    aggregation="secagg+",
    sealed=True,
    batches=True,
)
UNSEALED = replace(SEALED, sealed=False, aggregation="secagg")
RANDOM = replace(UNSEALED, batches=False, demanded=None, level=1)


def words(facts):
    """All that is said about a run."""
    points = (*guaranteed(facts).points, *not_guaranteed(facts).points)
    return " ".join([answer(facts)[0], *(f"{name}: {text}" for name, text in points), *assumptions(facts)])


def test_a_sealed_run_names_its_level_and_the_users_keys():
    """The level is told as good, and who enforces it are the users."""
    assert answer(SEALED) == (
        "However the server combines the sums of all 60 rounds, it never isolates a sum over fewer than 6 users.",
        "good",
    )
    assert "users' own keys" in words(SEALED)
    assert "honesty" not in words(SEALED)


@pytest.mark.parametrize("facts", [UNSEALED, RANDOM, replace(UNSEALED, aggregation="plain")])
def test_an_unsealed_run_never_claims_the_users_keys(facts):
    """Without a seal no word credits keys or masks, and a server that deviates is named as not covered."""
    assert "users' own keys" not in words(facts)
    assert "A server that deviates" in words(facts)


@pytest.mark.parametrize("facts", [SEALED, UNSEALED, RANDOM])
def test_every_run_says_what_the_level_is_not(facts):
    """What a sum reveals, differential privacy, colluders and visible availability are always told."""
    for part in ("not what a sum tells", "not differential privacy", "T − c", "available", "one machine"):
        assert part in words(facts)


def test_a_run_in_the_clear_is_never_called_good():
    """Plain aggregation says that the server saw each update, and its level is hypothetical."""
    said, tone = answer(replace(UNSEALED, aggregation="plain"))
    assert "in the clear" in said
    assert "would have had privacy level 6" in said
    assert tone == "plain"
    assert "Every single update" in words(replace(UNSEALED, aggregation="plain"))


def test_a_level_that_fell_is_a_warning():
    """A level below what was asked for, a level of one and an unknown level are warnings; the split is named."""
    fallen = replace(UNSEALED, level=2, split=3)
    assert answer(fallen)[1] == "warning"
    assert "below the level of 6" in answer(fallen)[0]
    assert "3 batches were split" in words(fallen)
    assert answer(RANDOM)[1] == "warning"
    assert "groups of at least 1" not in words(RANDOM)


def test_a_round_cut_off_without_a_seal_leaves_the_level_unknown():
    """No number is printed as the level then."""
    said, tone = answer(replace(UNSEALED, level=None, unfinished=1))
    assert (said, tone) == (
        "How private this run is, nobody can say: 1 unsealed round was cut off, with unknown sums learned.",
        "warning",
    )
    assert "T = " not in words(replace(UNSEALED, level=None, unfinished=1))


def test_a_round_cut_off_under_a_seal_counts_as_the_worst_case():
    """The level stays, and the assumption is said."""
    assert "2 rounds were cut off by a crash" in words(replace(SEALED, unfinished=2))


@pytest.mark.parametrize(
    ("aggregation", "part"),
    [
        ("open", "sum of each complete batch by itself"),
        ("secagg", "over all complete batches"),
        ("secagg+", "SecAgg+"),
    ],
)
def test_what_the_server_saw_depends_on_the_inner_protocol(aggregation, part):
    """Open shows each batch, the others the cohort's sum."""
    assert part in words(replace(SEALED, aggregation=aggregation))


def test_a_run_without_any_sum_gave_nothing_away():
    """Nothing learned is neither good nor bad."""
    said, tone = answer(replace(SEALED, learned=0, level=120))
    assert "nothing was given away" in said
    assert tone == "plain"
    assert "T = 120" not in words(replace(SEALED, learned=0, level=120))
