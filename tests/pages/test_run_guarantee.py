"""The words about a run are the audit's, and what stands beside them never claims more."""

import json
import re
from html import unescape

import pytest

from coterie.cli.run_view import print_result
from coterie.pages.run import assumptions, guaranteed, not_guaranteed, run_page
from support.runs import simulated

SEALED = {"lost": 0}
UNSEALED = {"sealed": False, "aggregation": "secagg", "lost": 0}
RANDOM = {"sealed": False, "privacy": None, "rounds": 140}
PLAIN = {"aggregation": "plain", "sealed": False, "lost": 0}


def text_of(run):
    """All that is said about a run."""
    verdict = run.verdict
    points = (*guaranteed(verdict, run.aggregation).points, *not_guaranteed(verdict).points)
    parts = [verdict.words.headline, *run.account, *(f"{name}: {text}" for name, text in points)]
    return " ".join([*parts, *assumptions(verdict)])


def headline_of(run):
    """The headline and how it is meant."""
    return run.verdict.words.headline, run.verdict.words.tone


def test_a_sealed_run_names_its_level_and_the_users_keys():
    """The level is told as good, and who enforces it are the users."""
    run = simulated(**SEALED)
    assert headline_of(run) == ("Users hide in groups of at least 6, and their own keys keep it so.", "good")
    assert run.account == (
        (
            "However the server combines the sums of 60 rounds, users come in groups of at least 6 that it cannot "
            "tell apart: nobody's update was given away alone."
        ),
        "Batches took part whole or not at all, as the plan says.",
    )
    assert "honesty" not in text_of(run)


def test_a_level_that_rests_on_trust_is_not_called_good():
    """Without the seal no keys are named, and the level depends on the server's honesty."""
    run = simulated(**UNSEALED)
    assert headline_of(run) == ("Users hide in groups of at least 6.", "plain")
    assert "The server's honesty" in text_of(run)


@pytest.mark.parametrize("options", [UNSEALED, RANDOM, PLAIN])
def test_an_unsealed_run_never_claims_the_users_keys(options):
    """Without a seal no word credits keys or masks, and a server that deviates is named as not covered."""
    text = text_of(simulated(**options))
    assert "own keys" not in text
    assert "A server that deviates" in text


@pytest.mark.parametrize("options", [SEALED, UNSEALED, RANDOM])
def test_every_run_says_what_the_level_is_not(options):
    """What a sum reveals, differential privacy, colluders and visible availability are always told."""
    text = text_of(simulated(**options))
    for part in ("not what a sum tells", "not differential privacy", "T − c", "available", "one machine"):
        assert part in text


def test_a_run_in_the_clear_is_a_warning():
    """Plain aggregation says that the server saw each update, so that no batch hides anyone."""
    run = simulated(**PLAIN)
    assert run.verdict.strong == 1
    headline, tone = headline_of(run)
    assert headline.startswith("The server saw every update by itself in ")
    assert tone == "warning"
    assert "Every single update" in text_of(run)


def test_a_level_that_fell_is_a_warning():
    """A level below what the plan promised is a warning, and the split is named."""
    run = simulated(**{**UNSEALED, "lost": 0.02, "rounds": 20})
    assert headline_of(run)[1] == "warning"
    assert run.verdict.below_plan
    assert "batches were split" in text_of(run)
    assert "groups of at least 1" not in text_of(simulated(**RANDOM))


def test_losses_under_a_seal_leave_the_verdict_good():
    """A batch that lost a member was left out whole, and that is said."""
    run = simulated(lost=0.01)
    assert run.lost_batches > 1
    assert headline_of(run)[1] == "good"
    assert f"A batch lost a member on the way {run.lost_batches} times and was left out whole." in run.account


def test_a_round_cut_off_without_a_seal_leaves_the_level_unknown():
    """Nobody can say how private it is; programs get no level."""
    run = simulated(**UNSEALED, unfinished=(3,))
    assert headline_of(run)[0].startswith("Nobody can say how private this is")
    assert headline_of(run)[1] == "warning"
    assert (run.summary()["strong"], run.summary()["weak"]) == (None, None)


def test_a_round_cut_off_under_a_seal_counts_as_the_worst_case():
    """The level stays, and the assumption is said."""
    assert "2 sealed rounds were cut off" in text_of(simulated(**SEALED, unfinished=(3, 9)))


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
    assert part in text_of(simulated(**SEALED, aggregation=aggregation))


def test_a_run_without_any_sum_gave_nothing_away():
    """Nothing learned is neither good nor bad, and no level is named."""
    run = simulated(rounds=0)
    assert headline_of(run) == ("No sum is on record, so the log gives nothing away.", "plain")
    assert "T = " not in text_of(run)


def test_a_few_rounds_in_which_batches_came_together_promise_no_more_than_the_keys_hold():
    """Two batches that met in the only round hide as one group so far; further rounds may tell them apart."""
    run = simulated(rounds=1, lost=0, away=0)
    assert headline_of(run) == (
        "Users hide in groups of at least 12 so far; the users' own keys keep it at 6 or more.",
        "good",
    )


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
    for figure in run.verdict.words.figures[:2]:
        assert f"{figure.label} {figure.value} ({figure.meaning})" in console
        assert f"{figure.label} {figure.value} {figure.meaning}" in page
    assert f'<h1 class="{verdict["tone"]}">' in run_page(run, "2025-03-01")


def test_the_kinds_of_runs_have_different_verdicts():
    """The comparison above meets every headline, and every tone."""
    verdicts = [simulated(**options).summary()["verdict"] for options in KINDS.values()]
    assert len({verdict["headline"].rstrip("0123456789") for verdict in verdicts}) >= 5
    assert {verdict["tone"] for verdict in verdicts} == {"good", "plain", "warning"}
