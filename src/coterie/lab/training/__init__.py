"""Local learning: data, who holds which, models, and the training of many clients at once.

In: images or tables with labels, who holds which, a model, settings.
Out: each user's update, or their mean; accuracy and loss.
"""

from coterie.lab.training.data import (
    Dataset,
    Examples,
    Partition,
    UserData,
    dirichlet,
    dirichlet_mixes,
    dropout_by_label,
    from_function,
    iid,
    read_folder,
    read_partition,
    shards,
    shards_and_shared,
    write_partition,
)
from coterie.lab.training.models import flatten, make_model
from coterie.lab.training.published import CIFAR10, CIFAR100, DATASETS, MNIST, MNIST_SMALL, load
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_trainer import make_trainer
from coterie.lab.training.trainer import Numerics, Trainer, evaluate

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
