"""The global model after a round, on disk, with what the wrapped strategy remembers; the ledger has its digest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from coterie.errors import UsageError
from coterie.files import encode_arrays, read_arrays, remove_unfinished, write_file, writing

StoredArrays: TypeAlias = ArrayRecord | list[NDArray[Any]] | dict[str, NDArray[Any]]
"""Arrays, as strategies keep them."""
StrategyState: TypeAlias = dict[str, StoredArrays]
"""What a strategy remembers of earlier rounds, by the names of its attributes."""

MODEL = "model"
"""The name of a checkpoint in the ledger's rounds."""
_VERSION = 1


@dataclass(frozen=True, eq=False)
class FlowerCheckpoint:
    """Where a federation stands after a round of training."""

    server_round: int
    arrays: ArrayRecord
    state: StrategyState


class CheckpointFolder:
    """Checkpoints in a folder, named after their digest; only the last ones stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path)

    def write(self, checkpoint: FlowerCheckpoint, before: str) -> str:
        """Write a checkpoint and return its digest; the one `before` stays, should this round not be committed."""
        named: dict[str, NDArray[Any]] = {}
        layout = {
            "version": _VERSION,
            "server_round": checkpoint.server_round,
            "arrays": _put(named, "model", checkpoint.arrays),
            "state": {name: _put(named, f"state-{name}", value) for name, value in checkpoint.state.items()},
        }
        named["layout"] = np.frombuffer(json.dumps(layout).encode(), dtype=np.uint8)
        data, digest = encode_arrays(named)
        write_file(self._file(digest), data)
        for path in self._path.glob(f"{MODEL}-*.npz"):
            if path not in {self._file(digest), self._file(before)}:
                path.unlink(missing_ok=True)
        return digest

    def read(self, digest: str) -> FlowerCheckpoint:
        """Return the checkpoint that the ledger names; one that was changed or lost is refused."""
        path = self._file(digest)
        named = read_arrays(path, digest)
        layout = json.loads(named["layout"].tobytes())
        if layout.get("version") != _VERSION:
            raise UsageError(
                f"{path} has the version {layout.get('version')}; this Coterie reads version {_VERSION}: go on "
                f"with the Coterie that wrote it"
            )
        model = _get(named, "model", layout["arrays"])
        state = {name: _get(named, f"state-{name}", each) for name, each in layout["state"].items()}
        assert isinstance(model, ArrayRecord)  # noqa: S101 - as it was written
        return FlowerCheckpoint(layout["server_round"], model, state)

    def _file(self, digest: str) -> Path:
        return self._path / f"{MODEL}-{digest[:32]}.npz"


def _put(named: dict[str, NDArray[Any]], prefix: str, arrays: StoredArrays) -> tuple[str, list[str]]:
    """Add arrays to those of a file; return what holds them, and under which keys."""
    keys = [str(number) for number in range(len(arrays))] if isinstance(arrays, list) else list(arrays)
    if isinstance(arrays, ArrayRecord):
        values = [array.numpy() for array in arrays.values()]
    else:
        values = list(arrays.values()) if isinstance(arrays, dict) else arrays
    named.update({f"{prefix}-{number}": np.asarray(array) for number, array in enumerate(values)})
    return type(arrays).__name__, keys


def _get(named: Mapping[str, NDArray[Any]], prefix: str, layout: tuple[str, list[str]]) -> StoredArrays:
    kind, keys = layout
    arrays = {key: named[f"{prefix}-{number}"] for number, key in enumerate(keys)}
    if kind == ArrayRecord.__name__:
        return ArrayRecord({key: Array(np.asarray(array)) for key, array in arrays.items()})
    return list(arrays.values()) if kind == list.__name__ else arrays
