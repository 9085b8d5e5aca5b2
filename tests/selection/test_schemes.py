"""A scheme's name says which batches it has and in which order they are served."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from coterie import AvailabilityLog, UsageError
from coterie.cli.simulate import simulate
from coterie.lab.experiments.spec import SelectionSettings
from coterie.selection import (
    by_availability,
    by_co_availability,
    consecutive,
    dealt,
    least_served,
    mix,
    one_least_served,
    selector_named,
    shuffled,
    uniform,
)
from coterie.selection.schemes import SCHEME_NAMES, knows_users, privacy_of

USERS, PER_ROUND = 24, 8
DROPOUT = np.random.default_rng(0).choice([0.1, 0.3, 0.5], USERS)
RECORD = AvailabilityLog(np.random.default_rng(1).random((30, USERS)) < 0.5)


def rng():
    """The same generator for a plan by name and one by hand."""
    return np.random.default_rng(5)


@pytest.mark.parametrize(
    ("name", "plan", "order"),
    [
        ("T4", consecutive(USERS, 4), least_served),
        ("t4-text", consecutive(USERS, 4), one_least_served),
        ("T4-uniform", consecutive(USERS, 4), uniform),
        ("T4-sorted", by_availability(DROPOUT, 4), least_served),
        ("T4-mixed50", mix(by_availability(DROPOUT, 4), 0.5, rng()), least_served),
        ("T4-together", by_co_availability(RECORD, 4), least_served),
        ("T4-shuffled", shuffled(USERS, 4, rng()), least_served),
        ("T4-dealt", dealt(USERS, 4), least_served),
    ],
)
def test_a_name_stands_for_a_plan_and_an_order(name, plan, order):
    """Every variant has the batches that its maker gives, and the order that its name says."""
    selector = selector_named(name, USERS, PER_ROUND, DROPOUT, rng=rng(), record=RECORD)
    assert selector.plan.members.tolist() == plan.members.tolist()
    assert selector.plan.starts.tolist() == plan.starts.tolist()
    assert selector.order is order


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("T4-sorted", "must know each user's dropout"),
        ("T4-mixed30", "must know each user's dropout"),
        ("bernoulli", "must know each user's dropout"),
        ("T4-together", "must know who was online when"),
        ("T4-mixed101", "mixing is 1.01"),
        ("T4-mixed", "there is no scheme"),
    ],
)
def test_what_a_scheme_must_know_is_asked_for(name, message):
    """A scheme that knows its users is refused where nobody knows them."""
    known = DROPOUT if "101" in name else None
    with pytest.raises(UsageError, match=message):
        selector_named(name, USERS, PER_ROUND, known, rng=rng())


@pytest.mark.parametrize(
    ("text", "batches"),
    [
        (inspect.getsource(SelectionSettings), "T4"),
        (simulate.__doc__, "T6"),
        ((Path(__file__).parents[2] / "docs" / "simulating.md").read_text(), "T6"),
    ],
    ids=["spec", "coterie simulate --help", "docs/simulating.md"],
)
def test_every_name_is_where_people_look_for_it(text, batches):
    """Spec, help and documentation name all schemes, and every name that they could type makes a selector."""
    for name in (name.replace("T6", batches) for name in SCHEME_NAMES):
        assert re.search(rf"\b{name}\b", text), name
        selector_named(name, USERS, PER_ROUND, DROPOUT, rng=rng(), record=RECORD)


@pytest.mark.parametrize("ask", [lambda name: privacy_of(name, PER_ROUND), knows_users], ids=["T", "knows users"])
@pytest.mark.parametrize("name", ["randm", "T4-sorted30", "T4-mixed", "T-4", "partition-dealt"])
def test_a_name_that_no_scheme_has_is_refused_whatever_is_asked(ask, name):
    """It has no T either: a level that nobody keeps must not be told."""
    with pytest.raises(UsageError, match=f"there is no scheme '{name}'"):
        ask(name)
