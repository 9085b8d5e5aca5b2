"""Local learning: data, how it is spread over users, models, and the training of many clients at once."""

from coterie.training.data.assignment import read_partition, write_partition
from coterie.training.data.dataset import Dataset, Examples
from coterie.training.data.federation import Federation, federated
from coterie.training.data.known import CIFAR10, CIFAR100, DATASETS, MNIST, MNIST_SMALL
from coterie.training.data.own import from_function, read_folder
from coterie.training.data.partition import Partition
from coterie.training.data.published import load
from coterie.training.data.spread import (
    dirichlet,
    dirichlet_mixes,
    dropout_by_label,
    iid,
    shards,
    shards_and_shared,
)
from coterie.training.engine.local import Trainer
from coterie.training.engine.numerics import Numerics
from coterie.training.engine.trainers import make_trainer
from coterie.training.engine.vector import flatten
from coterie.training.evaluate import evaluate
from coterie.training.models import make_model
from coterie.training.settings import LocalTraining

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DATASETS",
    "MNIST",
    "MNIST_SMALL",
    "Dataset",
    "Examples",
    "Federation",
    "LocalTraining",
    "Numerics",
    "Partition",
    "Trainer",
    "dirichlet",
    "dirichlet_mixes",
    "dropout_by_label",
    "evaluate",
    "federated",
    "flatten",
    "from_function",
    "iid",
    "load",
    "make_model",
    "make_trainer",
    "read_folder",
    "read_partition",
    "shards",
    "shards_and_shared",
    "write_partition",
]
