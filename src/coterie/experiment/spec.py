"""The spec of a run: everything that decides its result, in one frozen value, from TOML or from options."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from coterie.errors import UsageError
from coterie.storage.files import reading
from coterie.training.settings import LocalTraining
from coterie.values.checks import check_count, check_parameters, check_probabilities, check_probability
from coterie.values.tables import from_table

ShardOrder = Literal["sorted", "random"]


@dataclass(frozen=True)
class DataSettings:
    """What the users hold."""

    source: str = "mnist-small"
    """The data: mnist-small (shipped), mnist, cifar10, cifar100, or a folder with a file per user."""
    folder: str = "data"
    """Where the files of mnist, cifar10 and cifar100 are, or are fetched to."""
    users: int = 100
    """N, the number of users; of a folder with a file per user, the number of those files."""
    partition: str = "iid"
    """Who holds what: iid, shards, shards-shared, dirichlet, or the file of a saved partition."""
    order: ShardOrder = "sorted"
    """With shards: sorted gives users their shards in the order of labels, random in an order that is drawn."""
    shared: int = 20
    """With shards-shared: how many examples of each class everybody holds."""
    concentration: float = 0.5
    """With dirichlet: the concentration κ; small values give each user few labels."""


@dataclass(frozen=True)
class SelectionSettings:
    """Who takes part."""

    scheme: str = "T4"
    """T4 (batches of at least 4, or any T), T4-text, T4-uniform, T4-sorted, random, weighted, partition or
    bernoulli."""
    plan: str = ""
    """The file of a plan, as coterie plan wrote it, in place of a scheme; empty for none."""
    per_round: int = 20
    """K, the most users in one round."""
    spare: int = 0
    """Batches that are asked beyond K, in case some are lost."""
    dropout: tuple[float, ...] | Literal["by-label"] = (0.1, 0.2, 0.3)
    """Probabilities to be away, from which each user's is drawn; or "by-label": by the label it has most of."""
    lost: float = 0.005
    """Probability that a user is lost between being asked and having answered."""


@dataclass(frozen=True)
class TrainingSettings(LocalTraining):
    """What the users train and how, for how long, and where."""

    rounds: int = 60
    """J, the number of rounds."""
    device: str = "auto"
    """Where to train: auto (a GPU if there is one), cpu or cuda."""


@dataclass(frozen=True)
class AggregationSettings:
    """How the updates are added up."""

    protocol: str = "secagg+"
    """How: open, secagg, secagg+, lightsecagg with the users' cryptography; or plain, in the open and fast."""
    sealed: bool = True
    """Whether batches are sealed; some protocols also run unsealed, for comparison."""
    word_bits: Literal[0, 16, 32] = 0
    """Bits of the words that updates become: 16 or 32; 0 lets a protocol choose, and plain round nothing."""
    clip: float = 0.5
    """Values of an update beyond this are cut off before they are quantised."""
    weight_cap: int = 1
    """The largest weight of a user; with weighting "examples" at least the most examples that a user has."""


@dataclass(frozen=True)
class Spec:
    """A run, wholly: the same spec gives the same model, bit for bit on a CPU.

    >>> spec = Spec().changed({"training.rounds": 5, "selection.scheme": "T2"})
    >>> spec.training.rounds, spec.selection.scheme
    (5, 'T2')
    >>> Spec.from_tables({"training": {"round": 5}})
    Traceback (most recent call last):
    coterie.errors.UsageError: there is no training.round in a spec; did you mean training.rounds?
    """

    seed: int = 0
    """Decides everything that is drawn: data, model, minibatches, who is away, who is lost, rounding."""
    evaluate_every: int = 1
    """Rounds between two measurements on the test set; the last round is always measured."""
    keep_aggregates: bool = False
    """Whether every round's mean update is kept, for attacks to be tried on it."""
    data: DataSettings = field(default_factory=DataSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    aggregation: AggregationSettings = field(default_factory=AggregationSettings)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"the seed is {self.seed}: give a whole number from 0 up")
        check_count(self.evaluate_every, "evaluate_every")
        check_parameters(self.data.users, self.selection.per_round)
        check_count(self.training.rounds, "the number of rounds")
        check_count(self.selection.spare, "the number of spare batches", least=0)
        if self.selection.dropout != "by-label":
            check_probabilities(self.selection.dropout, "dropout")
        check_probability(self.selection.lost, "the probability to be lost mid-round")
        check_count(self.aggregation.weight_cap, "weight_cap")
        if not 0 < self.aggregation.clip < float("inf"):
            raise UsageError(f"clip is {self.aggregation.clip}; give a number above 0")
        _check_protocol(self.aggregation)

    @classmethod
    def read(cls, path: Path) -> "Spec":
        """Read a spec from a TOML file; what it does not say has its default."""
        with reading(path):
            text = path.read_bytes()
        try:
            tables = tomllib.loads(text.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not TOML: {error}") from None
        return cls.from_tables(tables, str(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], where: str = "") -> "Spec":
        """Return the spec of nested tables; an unknown key or a value of the wrong kind is refused."""
        try:
            return from_table(cls, tables, "a spec")
        except UsageError as error:
            raise UsageError(f"{where}: {error}" if where else str(error)) from None

    def tables(self) -> dict[str, Any]:
        """Return the spec as nested tables, which `from_tables` takes."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def changed(self, changes: Mapping[str, Any]) -> "Spec":
        """Return the spec with other values at dotted names such as `training.rounds`."""
        tables = self.tables()
        for name, value in changes.items():
            *parents, last = name.split(".")
            table = tables
            for parent in parents:
                table = table[parent]
            table[last] = value
        return Spec.from_tables(tables)


def _check_protocol(aggregation: AggregationSettings) -> None:
    """Refuse a protocol that is not there; plain needs no cryptography, and none is loaded for it."""
    if aggregation.protocol == "plain":
        return
    try:
        from coterie.secagg import PROTOCOLS
    except (
        ModuleNotFoundError
    ):  # a bare GPU machine: a spec, the default too, can still be made, changed and sent on
        return
    protocol = PROTOCOLS.get(aggregation.protocol)
    if protocol is None:
        names = ", ".join(("plain", *PROTOCOLS))
        raise UsageError(f"aggregation.protocol is {aggregation.protocol!r}; give one of {names}")
    if not (aggregation.sealed or protocol.runs_unsealed):
        raise UsageError(
            f"the protocol {protocol.name} has no privacy but its seal; leave sealed on, or take plain"
        )
