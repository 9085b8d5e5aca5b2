"""What a spec says about data, users and models is what a run is put together from."""

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.lab.experiments.run import Run
from coterie.lab.experiments.setup import prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.training.data import DROPOUT_OF_LABEL

OWN_MODEL = """
import torch
from torch import nn

def build(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

def wrong():
    return "a model"

def broken(classes):
    raise ZeroDivisionError("no classes")

def other_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))

def other_shape():
    return nn.Linear(5, 10)

number = 5
"""


def plain(**changes):
    """A plain run of the shipped data over 20 users."""
    return Spec().changed(
        {
            "data.users": 20,
            "aggregation.protocol": "plain",
            "training.device": "cpu",
            "selection.scheme": "random",
            "selection.per_round": 4,
            "training.rounds": 1,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
    )


def majority(setup):
    """The label that each user has most of."""
    user_data = setup.user_data
    return user_data.partition.label_counts(user_data.labels.numpy(), user_data.classes).argmax(axis=1)


def test_shards_are_handed_out_in_order_or_at_random():
    """Sorted, users' labels rise; at random they do not, differ with the seed, and the shards are the same."""
    by_label, at_random, other = (
        prepare(plain(data__partition="shards", data__order=order, seed=seed))
        for order, seed in [("sorted", 0), ("random", 0), ("random", 1)]
    )
    assert majority(by_label).tolist() == np.repeat(np.arange(10), 2).tolist()
    assert sorted(majority(at_random)) == majority(by_label).tolist()
    assert majority(at_random).tolist() != majority(by_label).tolist()
    assert majority(at_random).tolist() != majority(other).tolist()


def test_shared_examples_stay_with_everybody_in_any_order():
    """With shards-shared at random, everybody still holds the shared examples and one shard."""
    setup = prepare(plain(data__partition="shards-shared", data__order="random", data__shared=5))
    held = [set(setup.user_data.of(user).tolist()) for user in range(20)]
    assert len(set.intersection(*held)) == 50
    assert len(set.union(*held)) == 12_000


def test_users_are_away_by_their_label():
    """A user's dropout is that of the label it has most of, and schemes that sort by it know it."""
    spec = plain(data__partition="shards", selection__dropout="by-label", selection__scheme="T2-sorted")
    setup = prepare(spec)
    assert setup.world.dropout.tolist() == np.array(DROPOUT_OF_LABEL)[majority(setup)].tolist()
    online = np.mean([next(setup.world.available(step)) for step in range(400)], axis=0)
    assert online == pytest.approx(1 - setup.world.dropout, abs=0.12)


@pytest.fixture
def own_models(tmp_path, monkeypatch):
    """A folder with a module of one's own, as the present one."""
    (tmp_path / "my_own_models.py").write_text(OWN_MODEL)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_models")
@pytest.mark.parametrize("function", ["build", "fixed"])
def test_a_model_of_ones_own_is_trained(new_folder, function):
    """A function with or without parameters makes the model; the seed decides its first parameters; it resumes."""
    spec = plain(training__model=f"my_own_models:{function}", training__rounds=2)
    folder = new_folder()
    with Run.start(spec, folder) as run:
        first = run.parameters
        assert len(first) == 7850
        next(run.steps())
    with Run.resume(folder) as again:
        assert torch.equal(again.parameters, run.parameters)
        assert [row.outcome for row in again.steps()] == ["committed"]
    assert torch.equal(prepare(spec).trainer.layout.join(dict(prepare(spec).model.named_parameters())), first)


@pytest.mark.usefixtures("own_models")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere:build", "needs the module nowhere, which cannot be imported from .*ModuleNotFoundError"),
        ("my_own_models:missing", "my_own_models.py has no function 'missing'; check the name"),
        ("my_own_models:number", "has no function 'number'"),
        ("my_own_models:wrong", "is a str; let the function return a torch.nn.Module"),
        (
            "my_own_models:broken",
            "could not be made: ZeroDivisionError: no classes; the function may take classes",
        ),
        ("my_own_models:other_classes", r"gives \(1, 3\) for one example; it must give \(1, 10\)"),
        (
            "my_own_models:other_shape",
            "cannot take examples of 1 × 28 × 28, as mnist-small has them .RuntimeError",
        ),
        (":build", "cannot be imported"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_with_the_cause(model, message):
    """Whatever is wrong with a function of one's own, the message names it and what happened."""
    with pytest.raises(UsageError, match=message):
        prepare(plain(training__model=model))


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_tables_are_learned_by_models_made_for_their_columns(tmp_path, new_folder, model):
    """A folder of `features` and `labels`, whole numbers too, is trained on and learned."""
    rng = np.random.default_rng(0)
    for name in [*(f"clinic-{number}" for number in range(6)), "test"]:
        rows = rng.integers(-9, 10, size=(60, 7))
        np.savez(tmp_path / f"{name}.npz", features=rows, labels=(rows[:, 0] + rows[:, 3] > 0).astype(np.int64))
    changes = {"data__users": 6, "training__model": model, "training__rounds": 8, "training__learning_rate": 0.05}
    with Run.start(plain(data__source=str(tmp_path), **changes), new_folder()) as run:
        *_, last = run.steps()
    assert last.accuracy > 0.85
    with pytest.raises(UsageError, match=r"small-cnn cannot take examples of 7, .*mlp and logistic take any"):
        prepare(plain(data__source=str(tmp_path), data__users=6))


def test_settings_can_be_chosen_without_the_test_set():
    """With a holdout, users hold the other training examples, and the test set is not used."""
    usual, held = (prepare(plain(data__holdout=share)).user_data for share in (0.0, 0.25))
    assert len(held.train) + len(held.test) == len(usual.train)
    assert len(held.test) == round(0.25 * len(usual.train))
    assert held.sizes.sum() == len(held.train)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__holdout": 1.0}, "holdout is 1.0"),
        ({"data__holdout": -0.1}, "holdout is -0.1"),
        ({"data__holdout": 0.1, "data__source": "."}, "leave data.holdout out"),
    ],
)
def test_an_impossible_holdout_is_refused(changes, message):
    """A share outside 0 … 1, and one of data that have a test set of their own, are named."""
    with pytest.raises(UsageError, match=message):
        prepare(plain(**changes))
