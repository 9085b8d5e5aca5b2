"""Arrays as files whose digest is known elsewhere, in a ledger: what was changed since is refused."""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.storage.files import read_file


def encode_arrays(arrays: Mapping[str, object]) -> tuple[memoryview, str]:
    """Return arrays as the bytes of an npz file, and their SHA-256 in hexadecimal."""
    buffer, values = io.BytesIO(), {name: np.asarray(value) for name, value in arrays.items()}
    if any(value.dtype.hasobject for value in values.values()):
        raise UsageError("an array of Python objects cannot be stored; give numbers or texts")
    np.savez(buffer, **values)  # type: ignore[arg-type]  # its own switch for that is newer than numpy 2.0
    data = buffer.getbuffer()
    return data, hashlib.sha256(data).hexdigest()


def read_arrays(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, after its bytes have proved to be those that were written."""
    data = read_file(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise changed_file(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is damaged: {error}; put a sound copy there, or start anew") from None


def map_array(path: Path, name: str) -> NDArray[Any]:
    """Return one array of a file as a private map: it may be written to, the file stays."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        header = member.tell()
        place = archive.getinfo(f"{name}.npy").header_offset
    with path.open("rb") as raw:  # the archive's own header of a file ends with its name and an extra field
        raw.seek(place + 26)
        name_length, extra_length = np.frombuffer(raw.read(4), dtype="<u2").tolist()
    start = place + 30 + name_length + extra_length + header
    return np.memmap(path, dtype=dtype, mode="c", offset=start, shape=shape)


def changed_file(path: Path, where: str = "") -> UsageError:
    """Return what to raise about a file of which the ledger has another digest."""
    return UsageError(
        f"{path}{where} was changed since it was written: the ledger has another digest; put the right copy "
        f"there, or start anew"
    )
