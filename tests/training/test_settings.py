"""Local training's settings keep their rules and say the rate of a round."""

import pytest

from coterie import UsageError
from coterie.training.settings import LocalTraining


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
