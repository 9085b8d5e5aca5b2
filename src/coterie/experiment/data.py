"""The data of a run: loaded, given to the users, and ready to train on."""

import hashlib
from pathlib import Path

import numpy as np

from coterie.errors import UsageError
from coterie.experiment.spec import DataSettings
from coterie.training.data.dataset import Dataset, UserData
from coterie.training.data.fetch import Progress, no_progress
from coterie.training.data.own import read_folder
from coterie.training.data.partition import Partition, read_partition
from coterie.training.data.partitioning import dirichlet, iid, shards, shards_and_shared
from coterie.training.data.published import DATASETS, load

PARTITIONS = ("iid", "shards", "shards-shared", "dirichlet")


def load_user_data(data: DataSettings, rng: np.random.Generator, progress: Progress = no_progress) -> UserData:
    """Return the users' data as a spec describes it; published files that are missing are fetched."""
    if data.source in DATASETS:
        dataset = load(DATASETS[data.source], data.folder, progress)
        return UserData.of_dataset(dataset, _partition(data, dataset, rng))
    if Path(data.source).is_dir():
        return read_folder(data.source)
    raise UsageError(
        f"there is no data set or folder {data.source!r}; give {', '.join(DATASETS)}, or a folder with a file "
        "NAME.npz for each user, and test.npz"
    )


def data_digest(user_data: UserData) -> str:
    """Return the SHA-256 of everything that users hold and are tested with."""
    state = hashlib.sha256()
    for part in (user_data.images, user_data.labels, user_data.test_images, user_data.test_labels):
        values = part.numpy()
        state.update(f"{values.dtype} {values.shape}".encode())
        state.update(np.ascontiguousarray(values).data)
    for indices in (user_data.indices, user_data.starts):
        state.update(f"{len(indices)}".encode())
        state.update(np.ascontiguousarray(indices, dtype="<i8").data)
    state.update(repr((user_data.classes, user_data.mean, user_data.std, user_data.names)).encode())
    return state.hexdigest()


def _partition(data: DataSettings, dataset: Dataset, rng: np.random.Generator) -> Partition:
    labels = dataset.train.labels.numpy()
    match data.partition:
        case "iid":
            return iid(len(labels), data.users, rng)
        case "shards":
            return _in_order(shards(labels, data.users), data, rng)
        case "shards-shared":
            return _in_order(shards_and_shared(labels, data.users, data.shared, rng), data, rng)
        case "dirichlet":
            return dirichlet(labels, data.users, data.concentration, rng)
    if not Path(data.partition).is_file():
        raise UsageError(
            f"there is no partition {data.partition!r}; give {', '.join(PARTITIONS)}, or a saved partition's file"
        )
    partition = read_partition(data.partition)
    if len(partition) != data.users:
        raise UsageError(f"{data.partition} is for {len(partition)} users, not for {data.users}; set data.users")
    return partition


def _in_order(partition: Partition, data: DataSettings, rng: np.random.Generator) -> Partition:
    """Return shards as they are cut, the first user with the lowest labels, or handed out at random."""
    return partition.shuffled(rng) if data.order == "random" else partition
