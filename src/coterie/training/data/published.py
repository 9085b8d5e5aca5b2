"""Published data sets: which files they are, where a data folder may hold them, and how they are loaded."""

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np
import torch

from coterie.errors import UsageError
from coterie.files import read_file, reading
from coterie.training.data.dataset import Dataset, Examples
from coterie.training.data.files import (
    ByteArray,
    Download,
    FileContent,
    Progress,
    decode_cifar_binary,
    decode_cifar_python,
    decode_idx,
    digest_of,
    fetch,
    no_progress,
)

Decoder: TypeAlias = Callable[[Sequence[FileContent]], tuple[ByteArray, ByteArray]]


@dataclass(frozen=True)
class PublishedForm:
    """One of the forms that a data set is published in: its files, the archive they come in, and their decoder."""

    digests: Mapping[str, str]
    """The digest of each file's content, by its path as published; the files to train with come first."""
    training: int
    """How many files those are."""
    decode: Decoder
    archive: str | None = None


@dataclass(frozen=True)
class PublishedDataset:
    """A published data set: its forms, of which a data folder must hold one, and the files to fetch for one.

    `home` is the folder of a data set that comes with the package.
    """

    name: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    forms: tuple[PublishedForm, ...]
    downloads: tuple[Download, ...]
    home: Path | None = None


def load(
    source: PublishedDataset, folder: str | os.PathLike[str] | None = None, progress: Progress = no_progress
) -> Dataset:
    """Load a data set from a data folder; files that the folder does not hold are fetched into it first.

    A file may lie at its published path, or directly in the folder, as it is or with .gz; or in the archive it
    is published in. Every file's digest is checked. A data set that comes with the package needs no folder.
    """
    if source.home is not None:
        folder = source.home
    elif folder is None:
        raise UsageError(f"{source.name} needs a data folder: one that holds its files, or where to fetch them to")
    folder = Path(folder)
    form = _find_form(source, folder)
    if form is None:
        try:
            for download in source.downloads:
                fetch(download, folder, progress)
        except UsageError as error:
            raise UsageError(f"{error}; {_what_to_put(source, folder)}") from error
        form = _find_form(source, folder)
    if form is None:
        raise UsageError(_what_to_put(source, folder))
    contents = _read_files(form, folder)
    for path, published in form.digests.items():
        digest = digest_of(contents[path].data, like=published)
        if digest != published:
            raise UsageError(
                f"{contents[path].name} is not the published file of {source.name}: its digest is {digest} "
                f"instead of {published}; delete it and fetch it anew"
            )
    files = [contents[path] for path in form.digests]
    train, test = (_examples(*form.decode(some)) for some in (files[: form.training], files[form.training :]))
    return Dataset(source.name, source.classes, train, test, source.mean, source.std)


def _examples(images: ByteArray, labels: ByteArray) -> Examples:
    # Arrays that lie in a file's bytes cannot be written to, and torch wants to own what it gets.
    return Examples(torch.tensor(images), torch.tensor(labels.astype(np.int64)))


def _find_form(source: PublishedDataset, folder: Path) -> PublishedForm | None:
    """Return the first form that the folder holds completely."""
    for form in source.forms:
        if form.archive is not None and (folder / form.archive).is_file():
            return form
        if all(_place(path, folder) for path in form.digests):
            return form
    return None


def _place(path: str, folder: Path) -> Path | None:
    """Return where the folder holds a file."""
    published = folder / path
    direct = folder / published.name
    candidates = [each.with_name(each.name + suffix) for each in (published, direct) for suffix in ("", ".gz")]
    return next((each for each in candidates if each.is_file()), None)


def _read_files(form: PublishedForm, folder: Path) -> dict[str, FileContent]:
    """Read a form's files, each under its published path: from the folder, or else from the archive."""
    places = {path: _place(path, folder) for path in form.digests}
    if form.archive is not None and not all(places.values()):
        return _read_archive(folder / form.archive, list(places))
    return {path: FileContent(str(place), _content(place)) for path, place in places.items() if place}


def _content(path: Path) -> bytes:
    data = read_file(path)
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is not a whole gzip file ({error}); delete it and fetch it anew") from error


def _read_archive(archive: Path, names: Sequence[str]) -> dict[str, FileContent]:
    """Read files out of a .tar.gz; nothing is written to the disk."""
    contents = {}
    with reading(archive), archive.open("rb") as file:
        try:
            with tarfile.open(fileobj=file, mode="r|gz") as members:
                for member in members:
                    path = member.name.removeprefix("./")
                    if path in names and (content := members.extractfile(member)):
                        contents[path] = FileContent(f"{archive}: {path}", content.read())
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{archive} is not a whole archive ({error}); delete it and fetch it anew") from error
    for path in names:
        if path not in contents:
            raise UsageError(f"{archive} does not hold {path}; delete it and fetch it anew")
    return contents


def _what_to_put(source: PublishedDataset, folder: Path) -> str:
    """Say which files would do, and where they can be had, in one line."""
    forms = []
    for form in source.forms:
        if form.archive is not None:
            forms.append(form.archive)
        paths = [PurePosixPath(path) for path in form.digests]
        forms.append(f"{paths[0].parent}/ with {', '.join(path.name for path in paths)}")
    files = f"put {'; or '.join(forms)} there (a file may end in .gz)"
    addresses = ", ".join(download.address for download in source.downloads)
    had = f". They can be had from {addresses}" if addresses else ""
    return f"{folder} does not hold {source.name}: {files}{had}"


_MNIST_MEAN, _MNIST_STD = (0.1307,), (0.3081,)
_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_MNIST_MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist/"


def _mnist(folder: str, *digests: str) -> PublishedForm:
    files = (f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    return PublishedForm(_inside(folder, dict(zip(files, digests, strict=True))), 2, decode_idx)


def _inside(folder: str, digests: Mapping[str, str]) -> dict[str, str]:
    return {folder + file: digest for file, digest in digests.items()}


def _cifar_archive(name: str, digest: str) -> Download:
    return Download(f"https://www.cs.toronto.edu/~kriz/{name}", name, digest)


MNIST = PublishedDataset(
    "mnist",
    classes=10,
    mean=_MNIST_MEAN,
    std=_MNIST_STD,
    forms=(
        _mnist(
            "MNIST/raw/",
            "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    downloads=tuple(
        Download(_MNIST_MIRROR + file, f"MNIST/raw/{file}", f"sha256:{digest}")
        for file, digest in {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        }.items()
    ),
)
"""60 000 + 10 000 digits, 28 × 28."""

CIFAR10 = PublishedDataset(
    "cifar10",
    classes=10,
    mean=_CIFAR_MEAN,
    std=_CIFAR_STD,
    forms=(
        PublishedForm(
            _inside("cifar-10-batches-bin/", {
                "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }),
            training=5,
            decode=partial(decode_cifar_binary, label_bytes=1),
            archive="cifar-10-binary.tar.gz",
        ),
        PublishedForm(
            _inside("cifar-10-batches-py/", {
                "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
                "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
                "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "md5:40351d587109b95175f43aff81a1287e",
            }),
            training=5,
            decode=partial(decode_cifar_python, label_key="labels"),
            archive="cifar-10-python.tar.gz",
        ),
    ),
    downloads=(_cifar_archive("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
)  # fmt: skip
"""50 000 + 10 000 colour images, 32 × 32, of 10 things."""

CIFAR100 = PublishedDataset(
    "cifar100",
    classes=100,
    mean=_CIFAR_MEAN,
    std=_CIFAR_STD,
    forms=(
        PublishedForm(
            _inside("cifar-100-binary/", {
                "train.bin": "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "test.bin": "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            }),
            training=1,
            decode=partial(decode_cifar_binary, label_bytes=2),
            archive="cifar-100-binary.tar.gz",
        ),
        PublishedForm(
            _inside("cifar-100-python/", {
                "train": "md5:16019d7e3df5f24257cddd939b257f8d",
                "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
            }),
            training=1,
            decode=partial(decode_cifar_python, label_key="fine_labels"),
            archive="cifar-100-python.tar.gz",
        ),
    ),
    downloads=(_cifar_archive("cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),),
)  # fmt: skip
"""50 000 + 10 000 colour images, 32 × 32, of 100 things: the fine labels."""

MNIST_SMALL = PublishedDataset(
    "mnist-small",
    classes=10,
    mean=_MNIST_MEAN,
    std=_MNIST_STD,
    forms=(
        _mnist(
            "mnist-small/",
            "sha256:82cea0e308df341ce3c9c36b6f1f84c3a51c5d7478df2158fb4f787dc564982b",
            "sha256:2f36b62f2695b12edc89b8ebd633a87a6f66c6354e11cbf0bc28ef70318b9781",
            "sha256:a8eac99d81c9256c8d410e0b4a6404413e8d9c3163b2248a11ccf93d0440fe98",
            "sha256:a0f7d26ece1d11c9dae593bcfbdc071f177ab8812c34f1a0000b730f919b4d16",
        ),
    ),
    downloads=(),
    home=Path(__file__).parent / "shipped",
)
"""12 000 + 2 000 of MNIST's digits, equally many of each, unchanged; they come with the package.

`experiments/shipped_subset.py` draws them from the full MNIST."""

DATASETS = {source.name: source for source in (MNIST_SMALL, MNIST, CIFAR10, CIFAR100)}
"""The known data sets by name."""
