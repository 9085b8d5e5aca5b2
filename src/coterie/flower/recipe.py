"""The recipe of a Flower federation: all that its charters fix about training, beside the model.

A strategy's training configuration, the entries of the run's configuration that the app reads, and the bounds of
the metrics that are sealed with an update stay the same for a batch's whole life: whoever could move one of them
between two rounds would read single updates off the difference of two sums (docs/protocol.md §3).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from coterie.errors import PeerError, UsageError
from coterie.secagg import read_recipe, write_recipe

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
            for evaluation in (False, True):
                decoded.metrics(evaluation=evaluation)
        except (msgspec.ValidationError, UsageError) as error:
            raise PeerError(f"the charter's recipe is not one of a Flower federation: {error}") from None
        return decoded

    def metrics(self, *, evaluation: bool) -> "Metrics":
        """Return the metrics that are sealed in rounds of training, or of evaluation."""
        lines = self.evaluate_metrics if evaluation else self.train_metrics
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
