"""What is learned, and from which data: a small network, and a node's share of the digits that Coterie ships."""

import gzip
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

DATA = files("coterie") / "lab" / "training" / "shipped" / "mnist-small"


def make_net() -> nn.Module:
    """Return an untrained network of 6 010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def load(part: str, share: int = 0, shares: int = 1) -> tuple[Tensor, Tensor]:
    """Return every so-many-th example of "train" or "t10k", beginning with that of number `share`."""
    images = gzip.decompress((DATA / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((DATA / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    classes = np.frombuffer(labels, np.uint8, offset=8)
    return torch.tensor(pixels[share::shares]) / 255, torch.tensor(classes[share::shares]).long()


def train(net: nn.Module, images: Tensor, labels: Tensor, learning_rate: float) -> float:
    """Train for one epoch, and return the mean loss."""
    optimiser = torch.optim.SGD(net.parameters(), learning_rate)
    losses = []
    for some, their_labels in zip(images.split(32), labels.split(32), strict=True):
        optimiser.zero_grad()
        loss = cross_entropy(net(some), their_labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def test(net: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Return loss and accuracy."""
    out = net(images)
    return {
        "loss": cross_entropy(out, labels).item(),
        "accuracy": (out.argmax(1) == labels).float().mean().item(),
    }
