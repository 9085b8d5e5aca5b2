"""Small users' data and models that the tests of local training share."""

import numpy as np
import torch
from torch import nn

from coterie.lab.training import Examples, Partition, UserData


def user_data_of(sizes, shape=(1, 8, 8), classes=3, seed=0, names=None):
    """Return users' data: random examples, with so many for each user, in a mixed order."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    images = torch.from_numpy(rng.normal(size=(count, *shape)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, classes, count))
    order = rng.permutation(count)
    users = np.split(order, np.cumsum(sizes)[:-1])
    test = Examples(images[:7], labels[:7])
    return UserData(Examples(images, labels), Partition.from_users(count, users), test, classes, names=names)


def small_network():
    """Return a network with every layer that is stacked without `vmap`, for images of 8×8 (tanh would not be)."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3),
        nn.Sequential(nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 1), bias=False), nn.ReLU()),
        nn.Flatten(), nn.Linear(30, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 3, bias=False),
    )  # fmt: skip


class OwnModel(nn.Module):
    """A user's own module: a residual layer, one dropout layer called twice, tied and frozen parameters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(64, 8)
        self.middle = nn.Linear(8, 8)
        self.again = self.middle
        self.fixed = nn.Parameter(torch.full((8,), 0.5), requires_grad=False)
        self.drop = nn.Dropout(0.4)
        self.last = nn.Linear(8, 3)

    def forward(self, images):
        values = self.drop(torch.tanh(self.first(images.flatten(1))))
        values = values + self.drop(torch.tanh(self.again(self.middle(values)))) * self.fixed
        return self.last(values)
