"""The spec of a run: everything that decides its result, in one frozen value, from TOML or from options.

It can be written as a TOML file for a person: every field with its value and its meaning, from the docstrings.
"""

import ast
import inspect
import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from coterie.errors import UsageError
from coterie.federation.ledger import PLAIN
from coterie.files import read_file
from coterie.lab.training.data import count_users
from coterie.lab.training.settings import LocalTraining
from coterie.values.checks import check_count, check_parameters, check_probabilities, check_probability
from coterie.values.tables import from_table

_WIDTH = 100
"""Of the comments in a TOML file."""


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
    order: Literal["sorted", "random"] = "sorted"
    """With shards: sorted gives users their shards in the order of labels, random in an order that is drawn."""
    shared: int = 20
    """With shards-shared: how many examples of each class everybody holds."""
    concentration: float = 0.5
    """With dirichlet: the concentration κ; small values give each user few labels."""
    holdout: float = 0.0
    """Of a published set: the share of the training examples to test with, in place of the test set."""


@dataclass(frozen=True)
class SelectionSettings:
    """Who takes part."""

    scheme: str = "T4"
    """T4 (batches of at least 4, or any T), T4-text, T4-uniform, T4-sorted, T4-mixed30, T4-together, T4-shuffled,
    T4-dealt, random, weighted, partition or bernoulli."""
    plan: str = ""
    """The file of a plan, as coterie plan wrote it, in place of a scheme; empty for none."""
    per_round: int = 20
    """K, the most users in one round."""
    spare: int = 0
    """Batches that are asked beyond K, in case some are lost."""
    dropout: tuple[float, ...] | Literal["by-label"] = (0.1, 0.2, 0.3)
    """Probabilities to be away, from which each user's is drawn; or "by-label": by the label it has most of."""
    rounds_per_day: int = 0
    """Rounds of a day, if users are away by the clock of their time zone; 0 if every round by itself."""
    lost: float = 0.005
    """Probability that a user is lost between being asked and having answered."""


@dataclass(frozen=True)
class TrainingSettings(LocalTraining):
    """What the users train and how, for how long, and where."""

    rounds: int = 60
    """The number of rounds (J)."""
    device: str = "auto"
    """Where to train: auto (a GPU if there is one), cpu or cuda."""
    compiled: bool = False
    """On a GPU, whether kernels are compiled before the first round: pays for large models over many rounds."""
    precision: Literal["tf32", "bfloat16"] = "tf32"
    """On a GPU, how factors of products are rounded: tf32 (10 bits), or bfloat16 (8 bits, faster)."""


@dataclass(frozen=True)
class AggregationSettings:
    """How the updates are added up."""

    protocol: str = "secagg+"
    """How: one with the users' cryptography (coterie run --help has them all); or plain, in the clear and fast."""
    sealed: bool = True
    """Whether batches are sealed; some protocols also run unsealed, for comparison."""
    word_bits: Literal[0, 16, 32] = 0
    """Bits of the words that updates become: 16 or 32; 0 lets a protocol choose, and plain round nothing."""
    clip: float = 0.5
    """Values of an update beyond this are cut off before they are quantised."""
    weight_cap: int = 1
    """The largest weight of a user; with weighting "examples" at least the most examples that a user has."""

    @property
    def plain(self) -> bool:
        """Whether updates are added up in the open, without cryptography."""
        return self.protocol == PLAIN


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
        if not 0.0 <= self.data.holdout < 1.0:
            raise UsageError(f"holdout is {self.data.holdout}; give a share of the training examples, below 1")
        check_count(self.training.rounds, "the number of rounds")
        check_count(self.selection.spare, "the number of spare batches", least=0)
        if self.selection.dropout != "by-label":
            check_probabilities(self.selection.dropout, "dropout")
        check_count(self.selection.rounds_per_day, "the number of rounds per day", least=0)
        check_probability(self.selection.lost, "the probability to be lost mid-round")
        check_count(self.aggregation.weight_cap, "weight_cap")
        if not 0 < self.aggregation.clip < float("inf"):
            raise UsageError(f"clip is {self.aggregation.clip}; give a number above 0")
        _check_protocol(self.aggregation)

    @property
    def largest_weight(self) -> int:
        """The largest weight that a user may have in a sum."""
        return self.aggregation.weight_cap if self.training.weighting == "examples" else 1

    def most_asked(self, largest_batch: int) -> int:
        """Return how many users a round may ask: K, and the spare batches."""
        return self.selection.per_round + self.selection.spare * largest_batch

    @classmethod
    def read(cls, path: Path) -> "Spec":
        """Read a spec from a TOML file; what it does not say has its default."""
        text = read_file(path)
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
    if aggregation.plain:
        return
    try:
        from coterie.secagg import PROTOCOLS
    except ModuleNotFoundError:  # on a bare GPU machine a spec can still be made, changed and sent on
        return
    protocol = PROTOCOLS.get(aggregation.protocol)
    if protocol is None:
        names = ", ".join((PLAIN, *PROTOCOLS))
        raise UsageError(f"aggregation.protocol is {aggregation.protocol!r}; give one of {names}")
    if not (aggregation.sealed or protocol.runs_unsealed):
        raise UsageError(
            f"the protocol {protocol.name} has no privacy but its seal; leave sealed = true, or take plain"
        )


OPTIONS = {
    "data": "data.source",
    "users": "data.users",
    "partition": "data.partition",
    "per_round": "selection.per_round",
    "scheme": "selection.scheme",
    "privacy": "selection.scheme",
    "dropout": "selection.dropout",
    "lost": "selection.lost",
    "model": "training.model",
    "epochs": "training.epochs",
    "minibatch": "training.minibatch",
    "learning_rate": "training.learning_rate",
    "device": "training.device",
    "rounds": "training.rounds",
    "aggregation": "aggregation.protocol",
    "sealed": "aggregation.sealed",
    "keep_aggregates": "keep_aggregates",
    "seed": "seed",
}
"""The field of a spec that each short name stands for."""


def with_options(spec: Spec, options: Mapping[str, Any]) -> Spec:
    """Return a spec with other values under short names; a folder of data says itself how many users it has.

    >>> spec = with_options(Spec(), {"rounds": 6, "privacy": 5, "dropout": 0.2})
    >>> spec.training.rounds, spec.selection.scheme, spec.selection.dropout
    (6, 'T5', (0.2,))
    """
    for name in options:
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(OPTIONS)}"
            raise UsageError(f"a run has no option {name!r}; {hint}")
    changes = {OPTIONS[name]: value for name, value in options.items()}
    if "privacy" in options:
        if "scheme" in options:
            both = f"--privacy {options['privacy']} and --scheme {options['scheme']}"
            raise UsageError(f"{both} both name a scheme; give one of them")
        changes["selection.scheme"] = f"T{check_count(options['privacy'], '--privacy')}"
    if isinstance(dropout := options.get("dropout"), int | float):
        changes["selection.dropout"] = [dropout]
    source = Path(options.get("data", spec.data.source))
    if source.is_dir():
        changes["data.source"] = str(source.resolve())  # so that a resumed run finds it from anywhere
        if str(source) != spec.data.source and "users" not in options:  # the spec's number is of other data
            changes["data.users"] = count_users(source)
    spec = spec.changed(changes)
    _refuse_what_has_no_effect(spec, options)
    return spec


def _refuse_what_has_no_effect(spec: Spec, options: Mapping[str, Any]) -> None:
    """Refuse an option that would silently change nothing."""
    if "partition" in options and Path(spec.data.source).is_dir():
        raise UsageError(
            f"--partition has no effect on {spec.data.source}: its files say who holds what; leave it out"
        )
    if "sealed" in options and spec.aggregation.plain:
        raise UsageError("--unsealed has no effect with plain aggregation, which has no seal; leave it out")
    if {"scheme", "privacy"} & options.keys() and spec.selection.plan:
        raise UsageError(
            f"--scheme and --privacy have no effect on the plan {spec.selection.plan}, which the spec names; "
            "leave them out, or selection.plan"
        )


def spec_fields(table: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:  # noqa: ANN401 - a spec, or a table of one
    """Yield every field of a spec, in order: its dotted name, its value, and what it means.

    >>> next(spec_fields(Spec()))[:2]
    ('seed', 0)
    """
    meanings = _meanings(type(table))
    for each in fields(table):
        value = getattr(table, each.name)
        if is_dataclass(value):
            yield from spec_fields(value, f"{path}{each.name}.")
        else:
            yield f"{path}{each.name}", value, meanings[each.name]


def commented_spec(spec: Spec) -> str:
    """Return a spec as TOML in which a comment says what each field means.

    >>> print(commented_spec(Spec()).splitlines()[2])
    # Decides everything that is drawn: data, model, minibatches, who is away, who is lost, rounding.
    """
    lines = ["# What decides a run of coterie: coterie run SPEC.toml. What a file leaves out has its default."]
    table = ""
    for dotted, value, meaning in spec_fields(spec):
        parent, _, name = dotted.rpartition(".")
        if parent != table:
            title, *_ = (inspect.getdoc(getattr(spec, parent)) or "").splitlines()
            lines += ["", "", f"[{parent}]  # {title}"]
            table = parent
        comment = [f"# {line}" for line in textwrap.wrap(meaning, _WIDTH)]
        lines += ["", *comment, f"{name} = {toml_value(value)}"]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:  # noqa: ANN401 - whatever a spec holds
    """Return a value as TOML writes it.

    >>> toml_value(((400, 0.4),)), toml_value("T4"), toml_value(True)
    ('[[400, 0.4]]', '"T4"', 'true')
    """
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _meanings(kind: type) -> dict[str, str]:
    """Return the docstring that follows each field of a dataclass, its parents' too."""
    meanings: dict[str, str] = {}
    for each in reversed([each for each in kind.__mro__ if is_dataclass(each)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for pair in pairwise(body):
            match pair:
                case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text))):
                    meanings[name] = " ".join(str(text).split())
    return meanings
