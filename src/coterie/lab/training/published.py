"""Published data sets: fetched, decoded from bytes to arrays, and loaded by name.

A fetch goes on where it was cut off, and a file is checked before it gets its name. Every decoder takes the
`FileContent`s that make up a set of examples, in order; it returns images N × channels × height × width and
labels, both uint8, and refuses what the format does not allow: MNIST's IDX, CIFAR's binary records and its
pickles.

A pickle is a program. The reader here knows three names, which an array of bytes is written with, and gives each a
harmless stand-in; any other name is refused before anything happens.
"""

import gzip
import hashlib
import http.client
import io
import math
import os
import pickle
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.files import read_file, reading, sync_folder, writing
from coterie.lab.training.data import Dataset, Examples

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and how many it will have, where that is known."""

_BYTES_AT_ONCE = 1 << 18
_SECONDS_OF_SILENCE = 30
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


@dataclass(frozen=True)
class Download:
    """A published file: where it is, where it goes inside a data folder, and its digest ("md5:…")."""

    address: str
    path: str
    digest: str


def no_progress(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def digest_of(data: bytes, like: str) -> str:
    """Return the digest of `data`, made as `like` was.

    >>> digest_of(b"", like="md5:")
    'md5:d41d8cd98f00b204e9800998ecf8427e'
    """
    kind = like.partition(":")[0]
    return f"{kind}:{hashlib.new(kind, data, usedforsecurity=False).hexdigest()}"


def fetch(download: Download, folder: Path, progress: Progress = no_progress) -> None:
    """Fetch a file into a data folder, unless it is there.

    Bytes gather in a file that ends in .part; a later call goes on from there. A file that is not the published
    one never gets its final name.
    """
    target = folder / download.path
    if target.exists():
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    resumed = _size(part) > 0
    _receive(download.address, part, progress)
    if resumed and not _has_digest(part, download.digest):
        # What was there may be the start of another version: once more, from the first byte.
        part.unlink()
        _receive(download.address, part, progress)
    if not _has_digest(part, download.digest):
        part.unlink()
        raise UsageError(
            f"what {download.address} gave is not the published file: its digest is not {download.digest}; "
            f"get the file from another place and put it at {target}"
        )
    with writing(target):
        part.replace(target)
        sync_folder(target.parent)


def _receive(address: str, part: Path, progress: Progress) -> None:
    """Ask for what is missing until all is there; give up on a connection that brings nothing more."""
    while True:
        had = _size(part)
        total = _receive_once(address, part, progress)
        have = _size(part)
        if total is None or have >= total:
            return
        if have <= had:
            raise UsageError(
                f"{address} stopped after {have} of {total} bytes; they are kept in {part}: run again to go on"
            )


def _receive_once(address: str, part: Path, progress: Progress) -> int | None:
    """Add what one connection brings to the part; return the whole file's size, where it is known."""
    have = _size(part)
    request = Request(address, headers={"User-Agent": "coterie", **({"Range": f"bytes={have}-"} if have else {})})  # noqa: S310 - addresses are constants of this package
    try:
        response = urlopen(request, timeout=_SECONDS_OF_SILENCE)  # noqa: S310 - the same
    except HTTPError as error:
        with error:
            if error.code == _RANGE_NOT_SATISFIABLE:
                return None  # nothing comes after what is there; the digest tells whether it is the file
            raise UsageError(
                f"{address} cannot be fetched: the server answers {error.code} {error.reason}"
            ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise UsageError(f"{address} cannot be fetched: {reason}") from error
    with response:
        start = _start(response, have)
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        with writing(part), part.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.truncate()
            while data := _next(response):
                file.write(data)
                progress(part.name.removesuffix(".part"), file.tell(), total)
            os.fsync(file.fileno())
    return total


def _start(response: http.client.HTTPResponse, have: int) -> int:
    """Return where the answer's bytes belong: a server may give all of them instead of the rest."""
    place = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return have if response.status == _PARTIAL_CONTENT and place and int(place[1]) == have else 0


def _next(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BYTES_AT_ONCE)
    except (OSError, http.client.HTTPException):
        return b""  # cut off: the length tells how much is missing


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _has_digest(path: Path, digest: str) -> bool:
    return path.exists() and digest_of(path.read_bytes(), like=digest) == digest


ByteArray: TypeAlias = NDArray[np.uint8]

_CIFAR_PIXELS = 3 * 32 * 32
_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True)
class FileContent:
    """A file's content, with the name to call it by in errors."""

    name: str
    data: bytes


def decode_idx(files: Sequence[FileContent]) -> tuple[ByteArray, ByteArray]:
    """Decode a file of images and one of labels, both in the IDX format of MNIST."""
    images, labels = files
    grey, digits = read_idx(images, axes=3), read_idx(labels, axes=1)
    if len(grey) != len(digits):
        raise UsageError(
            f"{images.name} has {len(grey)} images, but {labels.name} {len(digits)} labels; fetch both files anew"
        )
    return grey[:, np.newaxis], digits


def read_idx(file: FileContent, axes: int) -> ByteArray:
    """Return the array of bytes in an IDX file: 0 0, kind, number of axes; each axis' length; the values.

    >>> read_idx(FileContent("labels", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])), axes=1)
    array([7, 9], dtype=uint8)
    """
    head = 4 + 4 * axes
    if file.data[:4] != bytes((0, 0, _UNSIGNED_BYTES, axes)):
        raise UsageError(
            f"{file.name} begins with {file.data[:4].hex(' ') or 'nothing'}; an IDX file of bytes with {axes} "
            f"axes begins with 00 00 08 {axes:02x}: fetch the file anew"
        )
    shape = [int.from_bytes(file.data[at : at + 4]) for at in range(4, head, 4)]
    expected = head + math.prod(shape)
    if len(file.data) < head or len(file.data) != expected:
        raise UsageError(f"{file.name} has {len(file.data)} bytes instead of {expected}; fetch the file anew")
    return np.frombuffer(file.data, dtype=np.uint8, offset=head).reshape(shape)


def decode_cifar_binary(files: Sequence[FileContent], label_bytes: int) -> tuple[ByteArray, ByteArray]:
    """Decode CIFAR's records: so many bytes of labels, the last of which counts, 32 × 32 pixels of each colour.

    CIFAR-10 has one label; CIFAR-100 has a coarse one, and then the fine one.
    """
    parts, size = [], label_bytes + _CIFAR_PIXELS
    for file in files:
        if len(file.data) == 0 or len(file.data) % size:
            raise UsageError(
                f"{file.name} has {len(file.data)} bytes, which are not whole records of {size}; fetch the file "
                "anew"
            )
        records = np.frombuffer(file.data, dtype=np.uint8).reshape(-1, size)
        parts.append((records[:, label_bytes:], records[:, label_bytes - 1]))
    return _cifar(parts)


def decode_cifar_python(files: Sequence[FileContent], label_key: str) -> tuple[ByteArray, ByteArray]:
    """Decode the pickled dictionaries of CIFAR, whose labels stand under this key."""
    parts = []
    for file in files:
        content = _unpickle(file)
        try:
            pixels, numbers = content[b"data"].array(), np.array(content[label_key.encode()], dtype=np.uint8)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise UsageError(
                f"{file.name} does not hold an array of bytes 'data' and a list {label_key!r}; fetch the file anew"
            ) from None
        if pixels.shape != (len(numbers), _CIFAR_PIXELS):
            raise UsageError(
                f"{file.name} has pixels of shape {pixels.shape} and {len(numbers)} labels, not {_CIFAR_PIXELS} "
                "pixels for each label; fetch the file anew"
            )
        parts.append((pixels, numbers))
    return _cifar(parts)


def _cifar(parts: Sequence[tuple[ByteArray, ByteArray]]) -> tuple[ByteArray, ByteArray]:
    """Return the pixels of several files as images, with their labels."""
    images, labels = (np.concatenate(values) for values in zip(*parts, strict=True))
    return images.reshape(-1, 3, 32, 32), labels


def _unpickle(file: FileContent) -> Any:  # noqa: ANN401 - a pickle holds anything
    try:
        # Written by Python 2: its strings are bytes.
        return _Reader(io.BytesIO(file.data), encoding="bytes").load()
    except UsageError as error:
        raise UsageError(f"{file.name} {error}") from None
    except Exception as error:  # broken bytes fail in every way there is
        raise UsageError(f"{file.name} is not a whole pickle ({error}); fetch the file anew") from error


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one in C lets ten bytes ask for gigabytes
    """An unpickler for which only three names exist."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        known = {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): None,
            ("numpy", "dtype"): _NumpyDtype,
        }
        try:
            return known[module, name]
        except KeyError:
            raise UsageError(
                f"wants to use {module}.{name}, which the published file does not; do not trust it, fetch it anew"
            ) from None


class _NumpyDtype:
    """Stands for `numpy.dtype`: the kind of an array's values."""

    def __init__(self, code: Any, *_: Any) -> None:  # noqa: ANN401
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like mean nothing for single bytes."""


class _Array:
    """Stands for `numpy.ndarray`: shape, kind and raw bytes."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def array(self) -> ByteArray:
        """Return the array of bytes; anything else is a ValueError."""
        _, shape, kind, by_column, raw = self.state
        if kind.code != b"u1" or not isinstance(raw, bytes):
            raise ValueError
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")


# --- the data sets, and where a data folder may hold their files

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
