"""Local learning: data, how it is spread over users, models, and the training of many clients at once."""

from coterie.training.assignment import read_partition, write_partition
from coterie.training.data import CIFAR10, CIFAR100, DATASETS, MNIST, MNIST_SMALL
from coterie.training.dataset import Dataset, Examples
from coterie.training.federation import Federation, federated
from coterie.training.own import from_function, read_folder
from coterie.training.partition import Partition
from coterie.training.published import load
from coterie.training.spread import dirichlet, dirichlet_mixes, dropout_by_label, iid, shards, shards_and_shared

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DATASETS",
    "MNIST",
    "MNIST_SMALL",
    "Dataset",
    "Examples",
    "Federation",
    "Partition",
    "dirichlet",
    "dirichlet_mixes",
    "dropout_by_label",
    "federated",
    "from_function",
    "iid",
    "load",
    "read_folder",
    "read_partition",
    "shards",
    "shards_and_shared",
    "write_partition",
]
