"""A round's training: by hand on a small case, and what it refuses."""

import numpy as np
import pytest
import torch
from torch import nn

from coterie import UsageError
from coterie.lab.training.models import flatten
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_trainer import StackedTrainer, timetable
from coterie.lab.training.trainer import SeparateTrainer, evaluate, minibatches
from support.training.clients import small_network, user_data_of

TRAINERS = [SeparateTrainer, lambda *given, **more: StackedTrainer(*given, cohort=2, **more)]


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def by_hand(user_data, user, parameters, local, round_):
    """SGD on a linear model with softmax written out in NumPy, in float64."""
    weights, bias = parameters[:12].reshape(3, 4).astype(float), parameters[12:].astype(float)
    speed = [np.zeros((3, 4)), np.zeros(3)]
    images, labels = user_data.images.flatten(1).double().numpy(), user_data.labels.numpy()
    total = 0.0
    for _ in range(local.epochs):
        own = user_data.of(user)
        for start in range(0, len(own), local.minibatch):
            places = own[start : start + local.minibatch]
            scores = images[places] @ weights.T + bias
            chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            total -= np.log(chances[np.arange(len(places)), labels[places]]).sum()
            slope = (chances - np.eye(3)[labels[places]]) / len(places)
            for index, (value, grad) in enumerate(
                ((weights, slope.T @ images[places]), (bias, slope.sum(axis=0)))
            ):
                speed[index] = local.momentum * speed[index] + grad + local.weight_decay * value
                value[...] -= local.rate(round_) * speed[index]
    return np.concatenate((weights.ravel(), bias)) - parameters, total / (local.epochs * len(user_data.of(user)))


@pytest.mark.parametrize("make", TRAINERS)
def test_training_is_sgd_as_written(make):
    """Updates and losses of a linear model are those of the formula, step by step."""
    user_data, model = user_data_of([7, 4], shape=(1, 2, 2)), linear()
    local = LocalTraining(
        epochs=3,
        minibatch=3,
        learning_rate=0.2,
        schedule=((5, 0.5),),
        momentum=0.4,
        weight_decay=0.1,
        shuffled=False,
    )
    parameters = flatten(model)
    updates = make(model, user_data, local).updates(parameters, [1, 0], 5)
    for row, user in enumerate([1, 0]):
        vector, loss = by_hand(user_data, user, parameters.numpy(), local, 5)
        assert updates.vectors[row].numpy() == pytest.approx(vector, rel=1e-4, abs=1e-6)
        assert updates.losses[row] == pytest.approx(loss, rel=1e-5)


def test_shuffled_minibatches_cover_the_same_examples_in_another_order():
    """Each epoch sees every example once; orders differ between epochs, rounds, users' seeds, and repeat."""
    user_data = user_data_of([10, 5])
    local = LocalTraining(epochs=2, minibatch=4, shuffled=True)
    seen = [np.concatenate(list(minibatches(user_data, local, 0, round_, 0))) for round_ in (0, 0, 1)]
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])
    assert not np.array_equal(seen[0][:10], seen[0][10:])
    for epoch in (seen[0][:10], seen[0][10:]):
        assert sorted(epoch) == sorted(user_data.of(0))
    fixed = np.concatenate(list(minibatches(user_data, LocalTraining(epochs=2, shuffled=False), 0, 9, 0)))
    assert fixed.tolist() == user_data.of(0).tolist() * 2


def test_a_timetable_holds_everybodys_minibatches():
    """Real entries are the minibatches in order; what fills up belongs to the same user."""
    user_data = user_data_of([7, 2])
    table = timetable(user_data, LocalTraining(epochs=2, minibatch=3, shuffled=False), np.array([1, 0]), 0, 0)
    assert table.places.shape == (2, 6, 3)
    assert table.active.tolist() == [[1, 1, 0, 0, 0, 0], [1] * 6]
    assert table.examples.tolist() == [[2, 2, 0, 0, 0, 0], [3, 3, 1, 3, 3, 1]]
    assert table.places[1][table.real[1] == 1].tolist() == user_data.of(0).tolist() * 2


@pytest.mark.parametrize("make", TRAINERS)
def test_an_update_that_is_not_finite_is_zero_and_nobody_else_is_stopped(make):
    """Among others a user without finite numbers sends zeros at its weight; its loss does not count."""
    user_data = user_data_of([4, 4, 4], names=("ann", "bob", "eve"))
    model, local = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), LocalTraining(learning_rate=1.0)
    right = make(model, user_data, local).updates(flatten(model), [2, 0], 4)
    user_data.images[int(user_data.of(1)[2])] = float("inf")
    trainer = make(model, user_data, local)
    updates = trainer.updates(flatten(model), [2, 1, 0], 4)
    assert not updates.vectors[1].any()
    assert updates.vectors[[0, 2]].numpy() == pytest.approx(right.vectors.numpy(), abs=1e-6)
    assert updates.diverged.tolist() == [1]
    assert updates.losses == pytest.approx([right.losses[0], right.losses.mean(), right.losses[1]], rel=1e-5)
    assert updates.weights.tolist() == [1, 1, 1]
    mean = trainer.mean(flatten(model), [2, 1, 0], 4)
    assert mean.vector.numpy() == pytest.approx(updates.vectors.mean(dim=0).numpy(), abs=1e-6)
    assert (mean.diverged.tolist(), mean.losses.tolist()) == ([1], updates.losses.tolist())


@pytest.mark.parametrize("make", TRAINERS)
def test_a_round_without_any_finite_number_names_round_and_users(make):
    """However clients are put into chunks, the message counts all of them, and names at most twelve."""
    user_data = user_data_of([2] * 15)
    user_data.images[...] = float("nan")
    trainer = make(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), user_data, LocalTraining())
    with pytest.raises(
        UsageError,
        match=r"after 4 rounds for all 14 users \(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more\); lower the",
    ):
        trainer.mean(flatten(trainer.model), range(1, 15), 4)


@pytest.mark.parametrize(
    ("users", "round_", "message"),
    [
        ([], 0, "no user was given"),
        ([1, 1], 0, "given twice"),
        ([2], 0, "user 2 is not one of the 2 users"),
        ([0], -1, "the round is -1"),
    ],
)
def test_what_cannot_be_trained_is_refused(users, round_, message):
    """Users and rounds that are none get a UsageError; so do parameters of another model."""
    trainer = SeparateTrainer(linear(), user_data_of([2, 2], shape=(1, 2, 2)), LocalTraining())
    with pytest.raises(UsageError, match=message):
        trainer.updates(torch.zeros(15), users, round_)
    with pytest.raises(UsageError, match="one vector, not of shape"):
        trainer.mean(torch.zeros(2, 15), [0], 0)
    with pytest.raises(UsageError, match="model of 15 parameters"):
        trainer.mean(torch.zeros(14), [0], 0)


def test_evaluation_counts_what_is_right(monkeypatch):
    """Accuracy and loss are the mean over the test set, however it is cut; dropout is off, modes stay."""
    user_data, model = user_data_of([5, 9]), small_network()
    parameters = flatten(model)
    model.eval()
    with torch.no_grad():
        outputs = model(user_data.test.images)
    chances = torch.softmax(outputs, dim=1)[torch.arange(7), user_data.test.labels]
    model.train()
    for size in (1, 3, 100):
        monkeypatch.setattr("coterie.lab.training.trainer._TESTED_ON_CPU", size)
        result = evaluate(model, parameters, user_data)
        assert result.accuracy == (outputs.argmax(dim=1) == user_data.test.labels).sum() / 7
        assert result.loss == pytest.approx(float(-chances.log().mean()), rel=1e-5)
    assert model.training


def test_rounds_learn():
    """Federated averaging of a few rounds tells two kinds of images apart that differ in brightness."""
    user_data = user_data_of([20, 20, 20], classes=2)
    user_data.images.add_(user_data.labels.view(-1, 1, 1, 1) * 1.5)
    trainer = SeparateTrainer(small_network(), user_data, LocalTraining(minibatch=5, epochs=2, learning_rate=0.1))
    parameters = flatten(trainer.model)
    before = evaluate(trainer.model, parameters, user_data)
    for round_ in range(6):
        parameters = parameters + trainer.mean(parameters, [0, 1, 2], round_).vector
    after = evaluate(trainer.model, parameters, user_data)
    assert after.accuracy == 1.0
    assert after.loss < before.loss
