"""The words about a run say what it guarantees, and never more."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest

from coterie.audit import Bracket
from coterie.cli.run_view import print_result
from coterie.report.run.guarantee import Facts, guarantee
from coterie.report.run.page import run_page
from support.runs import simulated

SEALED = Facts(
    users=120,
    rounds=60,
    learned=60,
    level=6,
    weak=Bracket(6, 6, None),
    required=6,
    split=0,
    lost=0,
    unfinished=0,
    aggregation="secagg+",
    sealed=True,
    batches=True,
)
UNSEALED = replace(SEALED, sealed=False, aggregation="secagg")
RANDOM = replace(UNSEALED, batches=False, required=None, level=1)


def words(facts):
    """All that is said about a run."""
    said = guarantee(facts)
    points = (*said.holds.points, *said.limits.points)
    return " ".join(
        [said.headline, *said.sentences, *(f"{name}: {text}" for name, text in points), *said.assumptions]
    )


def verdict(facts):
    """The headline and how it is meant."""
    said = guarantee(facts)
    return said.headline, said.tone


def test_a_sealed_run_names_its_level_and_the_users_keys():
    """The level is told as good, and who enforces it are the users."""
    said = guarantee(SEALED)
    assert verdict(SEALED) == ("Private: never fewer than 6 users in a sum", "good")
    assert said.sentences == (
        "However the server combines the sums of all 60 rounds, it never isolates a sum over fewer than 6 users.",
        "The users' own keys enforce it.",
    )
    assert "honesty" not in words(SEALED)


def test_a_level_that_rests_on_trust_is_not_called_good():
    """Without the seal the headline says what the level depends on."""
    assert verdict(UNSEALED) == ("Privacy level 6, if the server was honest", "plain")


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


def test_a_run_in_the_clear_is_a_warning():
    """Plain aggregation says that the server saw each update, so that no batch hides anyone."""
    plain = replace(UNSEALED, aggregation="plain", level=1)
    assert verdict(plain) == ("Not private: every update was in the clear", "warning")
    assert "1, whoever was chosen together" in words(plain)
    assert "Every single update" in words(plain)


def test_a_level_that_fell_is_a_warning():
    """A level below what was asked for and a level of one are warnings; the split is named."""
    fallen = replace(UNSEALED, level=2, split=3, lost=4)
    assert verdict(fallen) == ("Privacy level 2, below the 6 asked for", "warning")
    assert "A batch lost a member on the way 4 times, and 3 batches were split" in words(fallen)
    assert verdict(RANDOM) == ("Not private: the privacy level is 1", "warning")
    assert "groups of at least 1" not in words(RANDOM)


def test_losses_under_a_seal_leave_the_verdict_good():
    """A batch that lost a member was left out whole, and that is said."""
    assert verdict(replace(SEALED, lost=1)) == verdict(SEALED)
    assert "A batch lost a member on the way once and was left out whole." in words(replace(SEALED, lost=1))


def test_a_round_cut_off_without_a_seal_leaves_the_level_unknown():
    """No number is printed as the level then."""
    unknown = replace(UNSEALED, level=None, weak=None, unfinished=1)
    assert verdict(unknown) == ("How private this run is cannot be known", "warning")
    assert "T = " not in words(unknown)
    assert (guarantee(unknown).strong.value, guarantee(unknown).weak.value) == ("unknown", "unknown")


def test_a_weak_level_is_shown_as_far_as_it_is_proven():
    """One number where it is exact, a bracket otherwise."""
    assert guarantee(SEALED).weak.value == "6"
    assert guarantee(replace(SEALED, weak=Bracket(2, 6, None))).weak.value == "2..6"


def test_a_round_cut_off_under_a_seal_counts_as_the_worst_case():
    """The level stays, and the assumption is said."""
    assert "2 rounds were cut off by a crash" in words(replace(SEALED, unfinished=2))


@pytest.mark.parametrize(
    ("aggregation", "part"),
    [
        ("open", "sum of each complete batch by itself"),
        ("secagg", "over all complete batches"),
        ("secagg+", "over all complete batches"),
        ("lightsecagg", "over all complete batches"),
    ],
)
def test_what_the_server_saw_depends_on_the_inner_protocol(aggregation, part):
    """Open shows each batch, the others the cohort's sum."""
    assert part in words(replace(SEALED, aggregation=aggregation))


def test_a_run_without_any_sum_gave_nothing_away():
    """Nothing learned is neither good nor bad."""
    empty = replace(SEALED, learned=0, level=120, weak=None)
    assert verdict(empty) == ("No sum was learned", "plain")
    assert "Nothing was given away" in words(empty)
    assert "T = 120" not in words(empty)


KINDS = {
    "sealed": {},
    "losses": {"lost": 0.05},
    "plain": {"aggregation": "plain", "sealed": False, "lost": 0},
    "unsealed": {"sealed": False, "aggregation": "secagg", "lost": 0},
    "below T": {"sealed": False, "aggregation": "secagg", "lost": 0.02, "rounds": 20},
    "unknown": {"sealed": False, "unfinished": (3,)},
    "random": {"sealed": False, "privacy": None, "rounds": 140},
}


@pytest.mark.parametrize("kind", KINDS)
def test_console_page_and_json_say_the_same(kind, capsys, monkeypatch):
    """Headline, sentences and both levels of a run are the same words wherever they are shown."""
    monkeypatch.setenv("COLUMNS", "1000")
    run = simulated(**KINDS[kind])
    print_result(run, [])
    console = " ".join(capsys.readouterr().out.split())
    page = " ".join(unescape(re.sub("<[^>]+>", " ", run_page(run, "2025-03-01").partition("<main")[2])).split())
    verdict = run.summary()["verdict"]
    assert verdict == json.loads(json.dumps(verdict))
    for place in (console, page):
        assert verdict["headline"] in place
        assert " ".join(verdict["sentences"]) in place
    for tile in (run.guarantee.strong, run.guarantee.weak):
        assert f"{tile.value} ({tile.meaning})" in console
        assert f"{tile.label} {tile.value} {tile.meaning}" in page
    assert f'<h1 class="{verdict["tone"]}">' in run_page(run, "2025-03-01")


def test_the_kinds_of_runs_have_different_verdicts():
    """The comparison above meets every headline, and every tone."""
    verdicts = [simulated(**options).summary()["verdict"] for options in KINDS.values()]
    assert len({verdict["headline"].rstrip("0123456789") for verdict in verdicts}) >= 5
    assert {verdict["tone"] for verdict in verdicts} == {"good", "plain", "warning"}
