"""Local learning: data, who holds which, models, and the training of many clients at once.

In: images or tables with labels, who holds which, a model, settings.
Out: each user's update, or their mean; accuracy and loss.
"""

from coterie.training.data.dataset import Dataset, Examples, UserData, from_function, read_folder
from coterie.training.data.partition import (
    Partition,
    dirichlet,
    dirichlet_mixes,
    dropout_by_label,
    iid,
    read_partition,
    shards,
    shards_and_shared,
    write_partition,
)
from coterie.training.data.published import CIFAR10, CIFAR100, DATASETS, MNIST, MNIST_SMALL, load
from coterie.training.engine.hardware import Numerics
from coterie.training.engine.stacked_trainer import make_trainer
from coterie.training.engine.trainer import Trainer, evaluate
from coterie.training.models import flatten, make_model
from coterie.training.settings import LocalTraining

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DATASETS",
    "MNIST",
    "MNIST_SMALL",
    "Dataset",
    "Examples",
    "LocalTraining",
    "Numerics",
    "Partition",
    "Trainer",
    "UserData",
    "dirichlet",
    "dirichlet_mixes",
    "dropout_by_label",
    "evaluate",
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
