"""Numerics are set while a trainer computes, and only then."""

import pytest
import torch
from torch import nn

from coterie.training.engine.numerics import Numerics
from coterie.training.engine.one_by_one import OneByOne
from coterie.training.engine.vector import flatten
from coterie.training.settings import LocalTraining
from support.training.clients import federation_of


def switches():
    """What torch is set to."""
    return (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cuda"),
    )


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")
@pytest.mark.parametrize(
    ("numerics", "inside"),
    [
        (Numerics(), (True, True, False, False, False)),
        (Numerics(tf32=False, deterministic=True), (False, False, True, True, False)),
    ],
)
def test_switches_are_set_inside_and_put_back(numerics, inside, monkeypatch):
    """Within, torch is set as asked; afterwards as before, an error in between or not."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = switches()
    with numerics.applied():
        assert switches() == inside
    assert switches() == before
    with pytest.raises(ZeroDivisionError), numerics.applied():
        raise ZeroDivisionError
    assert switches() == before


def test_a_trainer_on_a_cpu_leaves_the_switches_alone():
    """Clients train side by side while the caller goes on; what a GPU may do concerns neither."""
    seen = []

    class Watching(nn.Linear):
        def forward(self, images):
            seen.append(switches())
            return super().forward(images.flatten(1))

    before = switches()
    trainer = OneByOne(Watching(64, 3), federation_of([2, 2]), LocalTraining(), numerics=Numerics(tf32=True))
    trainer.mean(flatten(trainer.model), [0, 1], 0)
    assert set(seen) == {before}
    assert switches() == before
