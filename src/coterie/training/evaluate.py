"""How good a model is on the test set."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.training.data.dataset import UserData
from coterie.training.engine.hardware import Stop, Workers, available_cores, one_core
from coterie.training.engine.stack import channels_last
from coterie.training.engine.vector import unflatten
from coterie.values.checks import check_count

_ON_CPU, _ON_GPU = 250, 2000


@dataclass(frozen=True)
class Evaluation:
    """The share of test examples whose label the model gives the highest output, and their mean loss."""

    accuracy: float
    loss: float


def evaluate(
    model: nn.Module,
    parameters: Tensor,
    user_data: UserData,
    minibatch: int | None = None,
    *,
    workers: int | None = None,
) -> Evaluation:
    """Test a model with these parameters (D values) where the data are; the module itself stays as it is.

    On a CPU `workers` minibatches are computed side by side, one core each: as many as there are cores, unless
    given. The result does not depend on their number.

    >>> from coterie.training import Examples, Partition
    >>> examples = Examples(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    >>> user_data = UserData.of_examples(
    ...     examples, Partition.from_users(2, [[0, 1]]), test=examples, classes=2
    ... )
    >>> result = evaluate(nn.Linear(1, 2, bias=False), torch.tensor([1.0, -1.0]), user_data)
    >>> result.accuracy, round(result.loss, 5)
    (1.0, 0.12693)
    """
    user_data = user_data.to(user_data.images.device)
    device = user_data.images.device
    images, labels = user_data.test_images, user_data.test_labels
    on_cpu = device.type == "cpu"
    size = (_ON_CPU if on_cpu else _ON_GPU) if minibatch is None else check_count(minibatch, "the minibatch size")
    most = available_cores() if workers is None else check_count(workers, "the number of workers")

    def test(replica: nn.Module, start: int, stop: Stop) -> Tensor:
        """Return how many of a minibatch are right, and the sum of its losses."""
        del stop
        with torch.no_grad():
            outputs, right = replica(images[start : start + size]), labels[start : start + size]
            loss = functional.cross_entropy(outputs, right, reduction="sum")
            return torch.stack(((outputs.argmax(dim=1) == right).sum().double(), loss.double()))

    with one_core(device):
        starts = range(0, len(labels), size)
        replicas = [_replica(model, parameters, device) for _ in range(min(most, len(starts)) if on_cpu else 1)]
        right, loss = torch.stack(list(Workers(replicas).map(test, starts))).sum(dim=0).tolist()
    return Evaluation(int(right) / len(labels), loss / len(labels))


def _replica(model: nn.Module, parameters: Tensor, device: torch.device) -> nn.Module:
    """Return a copy of a model with other parameters, to test it."""
    replica = copy.deepcopy(model).to(device).eval()
    unflatten(replica, parameters.to(device))
    if device.type == "cpu":
        channels_last(replica)
    return replica
