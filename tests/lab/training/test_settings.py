"""Local training's settings keep their rules and say the rate of a round."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.experiments.spec import Spec
from coterie.lab.training.settings import LocalTraining


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "local epochs is 0"),
        ({"minibatch": 2.5}, "minibatch size is 2.5"),
        ({"learning_rate": 0.0}, "learning rate is 0.0"),
        ({"learning_rate": float("inf")}, "learning rate is inf"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"weight_decay": -1.0}, "weight decay is -1.0"),
        ({"weighting": "size"}, "weighting is 'size'"),
        ({"schedule": ((10, 0.0),)}, "factor at round 10 is 0.0"),
        ({"schedule": ((-1, 0.5),)}, "a round of the schedule is -1"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong, message):
    """A value outside its range is a UsageError that shows it."""
    with pytest.raises(UsageError, match=message):
        LocalTraining(**wrong)


def test_the_rate_falls_at_the_rounds_of_the_schedule():
    """A factor holds from its round on, and factors multiply."""
    settings = LocalTraining(learning_rate=0.5, schedule=((2, 0.5), (4, 0.1)))
    assert [settings.rate(t) for t in range(6)] == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.025, 0.025])


def test_an_epochs_last_minibatch_may_be_smaller():
    """A user takes ⌈n / minibatch⌉ steps per epoch."""
    settings = LocalTraining(epochs=2, minibatch=10)
    assert [settings.steps(n) for n in (1, 10, 11, 30)] == [2, 2, 4, 6]


rates = st.floats(1e-6, 1e3)
some_settings = st.builds(
    LocalTraining,
    model=st.text(max_size=20),
    epochs=st.integers(1, 2**40),
    minibatch=st.integers(1, 2**40),
    learning_rate=rates,
    schedule=st.lists(st.tuples(st.integers(0, 2**40), rates), max_size=3).map(tuple),
    momentum=st.floats(0, 1, exclude_max=True),
    weight_decay=st.floats(0, 10),
    shuffled=st.booleans(),
    dropout=st.booleans(),
    weighting=st.sampled_from(["equal", "examples"]),
)


@given(some_settings)
def test_a_recipe_is_the_settings_and_nothing_else(settings):
    """From a recipe's bytes come the settings that they were made of, and from those the same bytes again."""
    recipe = settings.recipe_bytes()
    assert LocalTraining.from_recipe(recipe) == settings
    assert json.loads(recipe) == settings.recipe()
    assert list(json.loads(recipe)) == sorted(settings.recipe())


@given(some_settings, some_settings)
def test_equal_recipes_mean_equal_settings(first, second):
    """Two settings have the same bytes if and only if they are equal; whole numbers serve as numbers."""
    assert (first.recipe_bytes() == second.recipe_bytes()) == (first == second)
    assert (
        LocalTraining(learning_rate=1, momentum=0).recipe_bytes()
        == LocalTraining(learning_rate=1.0).recipe_bytes()
    )


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "it must be a table"),
        (b'{"epoch":1}', "there is no epoch in a recipe; did you mean epochs"),
        (b'{"epochs":"1"}', "epochs is '1'; give a whole number"),
        (b'{"learning_rate":NaN}', "learning rate is nan"),
        (b"{}", "canonical form"),
        (LocalTraining().recipe_bytes() + b"\n", "canonical form"),
        (LocalTraining().recipe_bytes().replace(b"0.1", b"0.10"), "canonical form"),
        (LocalTraining().recipe_bytes().replace(b"{", b'{"epochs":1,', 1), "canonical form"),
    ],
)
def test_any_other_bytes_are_no_recipe(recipe, message):
    """One recipe, one form: members of a batch compare digests, so nothing else may mean the same."""
    with pytest.raises(UsageError, match=message):
        LocalTraining.from_recipe(recipe)


def test_a_specs_table_is_these_settings():
    """A spec has the same defaults; rounds and device are no part of the recipe."""
    changed = Spec().changed({"training.rounds": 7, "training.device": "cpu"}).training
    assert changed.recipe_bytes() == Spec().training.recipe_bytes() == LocalTraining().recipe_bytes()
    assert Spec().changed({"training.epochs": 2}).training.recipe_bytes() == LocalTraining(epochs=2).recipe_bytes()
