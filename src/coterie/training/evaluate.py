"""How good a model is on a federation's test set."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from coterie.training.data.federation import Federation
from coterie.training.engine.vector import ParameterLayout, called
from coterie.values.checks import check_count


@dataclass(frozen=True)
class Evaluation:
    """The share of test examples whose label the model gives the highest output, and their mean loss."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(model: nn.Module, parameters: Tensor, federation: Federation, minibatch: int = 2000) -> Evaluation:
    """Test a model with these parameters (D values) on the federation's device; the module itself stays as it is.

    >>> from coterie.training import Examples, Partition
    >>> examples = Examples(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    >>> federation = Federation.of_examples(
    ...     examples, Partition.from_users(2, [[0, 1]]), test=examples, classes=2
    ... )
    >>> result = evaluate(nn.Linear(1, 2, bias=False), torch.tensor([1.0, -1.0]), federation)
    >>> result.accuracy, round(result.loss, 5)
    (1.0, 0.12693)
    """
    check_count(minibatch, "the minibatch size")
    federation = federation.to(federation.images.device)
    device = federation.images.device
    layout = ParameterLayout.of(model)
    state = layout.split(parameters.to(device))
    trained = model.training
    right, loss = torch.zeros((), dtype=torch.int64, device=device), torch.zeros((), device=device)
    model.eval()
    try:
        for start in range(0, len(federation.test_labels), minibatch):
            labels = federation.test_labels[start : start + minibatch]
            outputs = called(model, state, {}, federation.test_images[start : start + minibatch])
            right += (outputs.argmax(dim=1) == labels).sum()
            loss += functional.cross_entropy(outputs, labels, reduction="sum")
    finally:
        model.train(trained)
    count = len(federation.test_labels)
    return Evaluation(int(right) / count, float(loss) / count)
