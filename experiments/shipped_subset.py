"""Make the small MNIST that the package ships, from the full one.

    python experiments/shipped_subset.py DATA_FOLDER [OUT_FOLDER]

DATA_FOLDER holds MNIST (it is fetched if it does not). Out come 1 200 + 200 images of each digit, drawn with the
seed below and kept in MNIST's order, grey levels and all, as IDX files in gzip: into the package, unless another
folder is given. The files' content is the same everywhere; their compressed bytes are, with the same zlib.
"""

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np

from coterie.files import atomic_write
from coterie.lab.training import Examples, load
from coterie.lab.training.published import MNIST, MNIST_SMALL

SEED = 2021
TRAIN_PER_CLASS, TEST_PER_CLASS = 1200, 200


def subset(examples: Examples, per_class: int, rng: np.random.Generator) -> Examples:
    """Return equally many examples of each class, drawn at random, in the order that they had."""
    labels = examples.labels.numpy()
    drawn = [rng.choice(np.flatnonzero(labels == label), per_class, replace=False) for label in np.unique(labels)]
    places = np.sort(np.concatenate(drawn))
    return Examples(examples.images[places], examples.labels[places])


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes as an IDX file."""
    return b"".join(
        (bytes((0, 0, 8, array.ndim)), *(length.to_bytes(4) for length in array.shape), array.tobytes())
    )


def write(examples: Examples, prefix: str, folder: Path) -> None:
    """Write a set's images and labels; print the digest of each file's content."""
    for name, array in (
        (f"{prefix}-images-idx3-ubyte", examples.images.numpy()[:, 0]),
        (f"{prefix}-labels-idx1-ubyte", examples.labels.numpy().astype(np.uint8)),
    ):
        content = idx(array)
        path = folder / f"{name}.gz"
        with atomic_write(path) as file:
            file.write(gzip.compress(content, compresslevel=9, mtime=0))
        print(f"{path}: {path.stat().st_size} bytes, content sha256:{hashlib.sha256(content).hexdigest()}")


def main(data: Path, out: Path) -> None:
    """Draw the subset from the MNIST in `data` and write it to `out`."""
    mnist = load(MNIST, data)
    rng = np.random.default_rng(SEED)
    out.mkdir(parents=True, exist_ok=True)
    write(subset(mnist.train, TRAIN_PER_CLASS, rng), "train", out)
    write(subset(mnist.test, TEST_PER_CLASS, rng), "t10k", out)


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit(__doc__)
    shipped = MNIST_SMALL.home / "mnist-small" if MNIST_SMALL.home else Path()
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else shipped)  # noqa: PLR2004
