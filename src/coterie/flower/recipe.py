"""What devices are asked to do: the recipe that their charters fix, and the model in the terms of a round.

A strategy's training configuration, the entries of the run's configuration that the app reads, and the bounds of
the metrics that are sealed with an update stay the same for a batch's whole life: whoever could move one of them
between two rounds would read single updates off the difference of two sums (docs/protocol.md §3).

Of a model only arrays of floats are trained. Others, such as a counter of minibatches, stay as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from coterie.errors import PeerError, UsageError
from coterie.secagg import read_recipe, write_recipe
from coterie.secagg.crypto.quantiser import Floats
from coterie.values import FloatArray

RoundKind: TypeAlias = Literal["train", "evaluate"]
"""What a round is for, in the words of Flower's types of messages."""
Scalar: TypeAlias = bool | int | float | str
RecipeSetting: TypeAlias = Scalar | list[Scalar]
Bounds: TypeAlias = tuple[float, float]

ROUND = "server-round"
"""The entry of a configuration that is not in the recipe: it follows from the step."""

STRUCTURE = frozenset({
    "records", "arrays", "config", "weighted-by", "train", "evaluate", "run-config", "train-metrics",
    "evaluate-metrics",
})  # fmt: skip
"""The keys that every recipe of a Flower federation has, whatever it sets."""

SETTINGS = frozenset({
    "batch-size", "dropout", "epochs", "gamma", "learning-rate", "local-epochs", "lr", "momentum", "optimizer",
    "proximal-mu", "seed", "weight-decay",
})  # fmt: skip
"""What a recipe may set, unless a mod allows more: nothing that picks examples, limits time or names a user."""


class Records(msgspec.Struct, frozen=True):
    """Under which keys a strategy's messages have their model and their configuration."""

    arrays: str = "arrays"
    config: str = "config"


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What train and evaluate functions get beside the model, and which of their metrics are sealed."""

    train: dict[str, RecipeSetting]
    evaluate: dict[str, RecipeSetting]
    run_config: dict[str, Scalar]
    train_metrics: list[tuple[str, float, float]]
    """Each with its least and greatest value: what lies outside is cut."""
    evaluate_metrics: list[tuple[str, float, float]]
    weighted_by: str = "num-examples"
    """The metric of a train function that is a user's weight."""
    records: Records = Records()

    def encode(self) -> bytes:
        """Return the recipe as a charter has it."""
        return write_recipe(msgspec.to_builtins(self))

    @classmethod
    def decode(cls, recipe: bytes) -> "Recipe":
        """Return the recipe in a charter; refuse one that is not a Flower federation's."""
        try:
            decoded = msgspec.convert(read_recipe(recipe), cls)
            for kind in get_args(RoundKind):
                decoded.metrics(kind)
        except (msgspec.ValidationError, UsageError) as error:
            raise PeerError(f"the charter's recipe is not one of a Flower federation: {error}") from None
        return decoded

    def settings(self, kind: RoundKind) -> dict[str, RecipeSetting]:
        """Return the configuration of train functions, or of evaluate functions."""
        return self.train if kind == "train" else self.evaluate

    def metrics(self, kind: RoundKind) -> "Metrics":
        """Return the metrics that are sealed in rounds of this kind."""
        lines = self.train_metrics if kind == "train" else self.evaluate_metrics
        return Metrics({name: (low, high) for name, low, high in lines})


def settings_of(config: Mapping[str, object], what: str) -> dict[str, RecipeSetting]:
    """Return a configuration as a recipe can hold it, without the round's number."""
    settings: dict[str, RecipeSetting] = {}
    for name, value in config.items():
        if name == ROUND:
            continue
        entries = value if isinstance(value, list) else [value]
        if not all(isinstance(each, bool | int | float | str) for each in entries):
            raise UsageError(
                f"{what} has {name!r} as {type(value).__name__}; a charter holds numbers, texts and lists of them"
            )
        settings[name] = value  # type: ignore[assignment]  # the entries were looked at
    return settings


@dataclass(frozen=True)
class Metrics:
    """Metrics as coordinates of a sealed vector: each is cut to its bounds and spread over [-clip, clip].

    >>> loss = Metrics({"loss": (0.0, 10.0)})
    >>> loss.coordinates({"loss": 2.5}, clip=1.0), loss.values([-0.5], clip=1.0)
    ([-0.5], {'loss': 2.5})
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (low, high) in self.bounds.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise UsageError(
                    f"the bounds of the metric {name!r} are {low} and {high}; give a lower and a higher"
                )

    def lines(self) -> list[tuple[str, float, float]]:
        """Return the metrics as a recipe has them."""
        return [(name, float(low), float(high)) for name, (low, high) in self.bounds.items()]

    def coordinates(self, values: Mapping[str, object], clip: float) -> list[float]:
        """Return the coordinates of a user's metrics; one that is not a number spoils the update, as any value."""
        coordinates = []
        for name, (low, high) in self.bounds.items():
            value = values.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"the app gives no number as its metric {name!r}, which the charter asks for")
            cut = min(max(value, low), high) if math.isfinite(value) else math.nan
            coordinates.append((2.0 * (cut - low) / (high - low) - 1.0) * clip)
        return coordinates

    def values(self, coordinates: list[float], clip: float) -> dict[str, float]:
        """Return the mean metrics from the mean of coordinates."""
        return {
            name: low + (coordinate / clip + 1.0) / 2.0 * (high - low)
            for (name, (low, high)), coordinate in zip(self.bounds.items(), coordinates, strict=True)
        }


_EncodedWork: TypeAlias = tuple[RoundKind, list[tuple[str, str, tuple[int, ...], bytes]]]
"""The kind of a round, and name, dtype, shape and content of each array."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a round asks for: to train a model, or to evaluate it."""

    kind: RoundKind
    arrays: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(cls, kind: RoundKind, record: ArrayRecord) -> "Work":
        """Return the work on a model of Flower's."""
        return cls(kind, {name: array.numpy() for name, array in record.items()})

    def encode(self) -> bytes:
        """Return the bytes that the terms of a round have as their model."""
        arrays = [(name, each.dtype.str, each.shape, each.tobytes()) for name, each in self.arrays.items()]
        return msgspec.msgpack.encode((self.kind, arrays))

    @classmethod
    def decode(cls, data: bytes) -> "Work":
        """Return the work in some terms; refuse bytes that are none."""
        try:
            kind, encoded = msgspec.msgpack.decode(data, type=_EncodedWork)
            arrays = {
                name: np.frombuffer(bytearray(content), dtype=_plain(dtype)).reshape(shape)
                for name, dtype, shape, content in encoded
            }
        except (msgspec.MsgspecError, ValueError, TypeError, UnicodeDecodeError) as error:
            raise PeerError(f"the server's model cannot be read: {error}") from None
        if len(arrays) != len(encoded):
            raise PeerError("the server's model has two arrays of one name")
        return cls(kind, arrays)

    @property
    def record(self) -> ArrayRecord:
        """The model as Flower has it."""
        return ArrayRecord({name: Array(array) for name, array in self.arrays.items()})

    @property
    def trained(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of floats where the model is trained; none where it is evaluated."""
        return {
            name: array for name, array in self.arrays.items() if self.kind == "train" and array.dtype.kind == "f"
        }

    @property
    def dimension(self) -> int:
        """How many numbers of the model an update has."""
        return sum(array.size for array in self.trained.values())

    def update(self, after: ArrayRecord, metrics: list[float]) -> Floats:
        """Return what training changed in the model, then the coordinates of metrics, in one row."""
        if set(after.keys()) != set(self.arrays):
            raise UsageError(
                f"the app returned the arrays {', '.join(after)}; the model has {', '.join(self.arrays)}"
            )
        wide = any(array.dtype.itemsize > np.dtype(np.float32).itemsize for array in self.trained.values())
        row: Floats = np.empty(self.dimension + len(metrics), dtype=np.float64 if wide else np.float32)
        start = 0
        for name, before in self.trained.items():
            array, part = after[name].numpy(), row[start : start + before.size]
            if array.shape != before.shape:
                raise UsageError(f"the app returned {name!r} as {array.shape}; in the model it is {before.shape}")
            np.subtract(array.reshape(-1), before.reshape(-1), out=part, casting="unsafe")
            start += before.size
        row[start:] = metrics
        return row

    def moved_by(self, mean: FloatArray) -> ArrayRecord:
        """Return the model with the mean update added: the average of the models that users would have sent."""
        arrays, start = dict(self.arrays), 0
        for name, before in self.trained.items():
            change = mean[start : start + before.size].reshape(before.shape)
            arrays[name] = np.add(before, change, dtype=np.float64).astype(before.dtype)
            start += before.size
        return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def with_types_of(record: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """Return a model with the dtypes of another: a strategy's average makes floats of whole numbers."""
    if set(record) != set(like):
        raise UsageError(f"the strategy returned the arrays {', '.join(record)}; the model has {', '.join(like)}")
    arrays = {}
    for name, before in like.items():
        array, dtype = record[name].numpy(), np.dtype(before.dtype)
        arrays[name] = Array(np.asarray(np.rint(array) if dtype.kind in "iu" else array).astype(dtype))
    return ArrayRecord(arrays)


def _plain(dtype: str) -> np.dtype[np.generic]:
    """Return a dtype of plain numbers; refuse objects and structures."""
    plain = np.dtype(dtype)
    if plain.kind not in "fiub":
        raise ValueError(f"it has an array of {dtype}")
    return plain
