"""The shipped MNIST is whole and balanced, its maker works, and training needs only NumPy and torch."""

import gzip
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.lab.training import DATASETS, MNIST_SMALL, load
from coterie.lab.training.published import FileContent, decode_idx

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def small():
    return load(MNIST_SMALL)


def test_the_shipped_data_is_small_and_balanced(small):
    """12 000 + 2 000 images of 28 × 28, 1 200 + 200 of each digit, in less than 3 MB."""
    for examples, per_class in ((small.train, 1200), (small.test, 200)):
        assert examples.images.shape == (10 * per_class, 1, 28, 28)
        assert examples.images.dtype == torch.uint8
        assert torch.bincount(examples.labels).tolist() == [per_class] * 10
    files = [path for path in MNIST_SMALL.home.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000


def test_the_shipped_images_are_digits(small):
    """They have all grey levels, MNIST's mean and spread, and no image twice: nothing was rounded or repeated."""
    grey = small.train.images
    assert len(grey.unique()) == 256
    assert (grey / 255).mean().item() == pytest.approx(small.mean[0], abs=0.002)
    assert (grey / 255).std().item() == pytest.approx(small.std[0], abs=0.002)
    both = torch.cat((small.train.images, small.test.images)).flatten(1).numpy()
    assert len({image.tobytes() for image in both}) == 14_000


def test_the_order_tells_nothing_about_labels(small):
    """Labels are mixed as in MNIST: a run of neighbours has all digits."""
    assert all(len(run.unique()) == 10 for run in small.train.labels.split(200))


@pytest.fixture(scope="module")
def maker():
    """The script that makes the shipped files."""
    spec = importlib.util.spec_from_file_location("shipped_subset", ROOT / "experiments" / "shipped_subset.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_maker_writes_what_the_loader_reads(maker, small, tmp_path, capsys):
    """A subset has equally many of each digit in their order, the seed decides, and its files come back."""
    subset, again = (maker.subset(small.train, 7, np.random.default_rng(1)) for _ in range(2))
    assert torch.equal(subset.images, again.images)
    assert torch.bincount(subset.labels).tolist() == [7] * 10
    whole = [image.tobytes() for image in small.train.images.numpy()]
    places = [whole.index(image.tobytes()) for image in subset.images.numpy()]
    assert places == sorted(places)
    maker.write(subset, "train", tmp_path)
    files = [tmp_path / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    images, labels = decode_idx([FileContent(str(path), gzip.decompress(path.read_bytes())) for path in files])
    assert np.array_equal(images, subset.images.numpy())
    assert np.array_equal(labels, subset.labels.numpy())
    assert capsys.readouterr().out.count("sha256:") == 2


def test_data_sets_are_known_by_their_names():
    """Names, classes, and one mean and standard deviation per channel."""
    known = {name: (source.classes, len(source.mean), len(source.std)) for name, source in DATASETS.items()}
    assert known == {
        "mnist-small": (10, 1, 1),
        "mnist": (10, 1, 1),
        "cifar10": (10, 3, 3),
        "cifar100": (100, 3, 3),
    }


def test_data_needs_only_numpy_and_torch():
    """Loading and spreading the shipped data works where no other package is installed."""
    blocked = ["scipy", "msgspec", "rich", "typer", "cryptography", "flint", "matplotlib", "PIL", "torchvision"]
    script = f"""
import sys
for name in {blocked}:
    sys.modules[name] = None
import numpy as np
from coterie.lab.training import MNIST_SMALL, dirichlet, UserData, load
dataset = load(MNIST_SMALL)
partition = dirichlet(dataset.train.labels.numpy(), 12, 0.5, np.random.default_rng(0))
print(UserData.of_dataset(dataset, partition).to("cpu"))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout == "UserData(12 users, 12000 examples, 2000 to test with, 10 classes)\n"
