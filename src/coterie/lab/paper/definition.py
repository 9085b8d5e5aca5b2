"""An experiment as its TOML file says it: which runs it has, the paper's numbers, and the claims to be judged."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from coterie.errors import UsageError
from coterie.lab.experiments.spec import Spec
from coterie.values.tables import from_table

ExperimentKind = Literal["training", "reconstruction", "measures", "family", "tradeoff", "threshold"]
ReportProgress = Callable[[str, int, int], None]
"""Is called with what has ended, how many are done, and how many there are."""


@dataclass(frozen=True)
class Setting:
    """One column of a table, or one panel of a figure."""

    name: str
    """How the paper calls it, such as IID."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Where it differs from the experiment's own spec."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's numbers, by scheme."""
    value: str = ""
    """Of a reconstruction, which numbers of a record: rate, method, rounds and measure, with slashes."""


@dataclass(frozen=True)
class Claim:
    """What somebody says of numbers, the paper unless it is our own, in a form that can be judged.

    `lowest` is the scheme that must come out below all others. `above` must be passed by every one of `schemes`;
    with `level` every one of `schemes` must come within `within` points of it, or above. With `falling` none of
    `schemes` may come out above the one before it.
    """

    claim: str
    settings: tuple[str, ...] = ()
    """The settings that it speaks of; all of them if none is named."""
    schemes: tuple[str, ...] = ()
    lowest: str = ""
    above: str = ""
    level: str = ""
    within: float = 1.0
    below: float = 0.0
    """What every one of `schemes` must stay below, if it is given."""
    least: float = 0.0
    """What every one of `schemes` must reach, if it is given."""
    falling: bool = False
    own: bool = False
    """Whether it is not the paper's: what we say of what the paper does not have, or of its numbers."""


@dataclass(frozen=True)
class Windows:
    """What is attacked after a model has settled: rates, and windows of rounds."""

    rates: tuple[float, ...] = (1.6e-3, 4e-4, 1e-4, 1e-5)
    """Final learning rates; each goes on from the settled model."""
    lengths: tuple[int, ...] = (40, 50, 60, 80, 110, 140)
    """Rounds in a window."""
    count: int = 20
    """Windows of each length."""
    first: int = 20
    """Rounds at the final rate before the first window."""
    stride: int = 10
    """Rounds from the start of one window to the next."""

    @property
    def starts(self) -> range:
        """Where windows start, in rounds at the final rate."""
        return range(self.first, self.first + self.count * self.stride, self.stride)

    @property
    def rounds(self) -> int:
        """All rounds at a final rate."""
        return self.starts[-1] + max(self.lengths)


@dataclass(frozen=True)
class Quick:
    """What is made smaller for a first look on a laptop."""

    seeds: tuple[int, ...] = (0,)
    schemes: tuple[str, ...] = ()
    """All schemes if none is named."""
    trials: int = 20
    spec: Mapping[str, Any] = field(default_factory=dict)
    windows: Windows = field(default_factory=Windows)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a training experiment."""

    setting: str
    scheme: str
    seed: int
    spec: Spec
    windows: Windows | None = None
    """What is attacked after the training, if anything is."""

    @property
    def digest(self) -> str:
        """Names everything that decides the run's result: a record with another digest is of another run.

        It is made of what differs from the default spec, so that a spec can gain fields and records stay. Where a
        run is computed, and whether by compiled kernels, does not count.
        """
        spec = self.spec.changed({"data.folder": "", "training.device": "", "training.compiled": False})
        tables = differing(spec.tables(), Spec().tables())
        if self.windows is not None:
            tables["windows"] = asdict(self.windows)
        return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.setting}, {self.scheme}, seed {self.seed}"


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    title: str
    source: str
    """The label of the paper's table or figure."""
    kind: ExperimentKind
    schemes: tuple[str, ...]
    settings: tuple[Setting, ...]
    claims: tuple[Claim, ...] = ()
    seeds: tuple[int, ...] = (0,)
    last: int = 5
    """The accuracy of a run is the mean of this many last evaluations: the very last one swings."""
    trials: int = 200
    """Simulated runs, where nothing is trained."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    windows: Windows = field(default_factory=Windows)
    """Of a reconstruction: what is attacked."""
    quick: Quick = field(default_factory=Quick)
    notes: str = ""
    """What differs from the paper, and why."""

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """Read an experiment's file."""
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path} cannot be read as an experiment: {error}") from None
        return from_table(cls, {"name": path.stem, **tables}, str(path))

    def quick_version(self) -> "Experiment":
        """Return the experiment with fewer seeds and trials, and its smaller spec."""
        return replace(
            self,
            seeds=self.quick.seeds,
            trials=self.quick.trials,
            schemes=self.quick.schemes or self.schemes,
            spec=merged(self.spec, self.quick.spec),
            windows=self.quick.windows,
        )

    @property
    def trains(self) -> bool:
        """Whether models are trained for it; otherwise it is computed or simulated."""
        return self.kind in {"training", "reconstruction"}

    @property
    def digest(self) -> str:
        """Names everything that decides what is simulated: a record with another digest is of other trials."""
        settings = [[setting.name, setting.spec] for setting in self.settings]
        deciding = [self.kind, self.schemes, settings, self.trials, self.spec]
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]

    def runs(self, folder: str = "data", device: str = "auto") -> Iterator[PlannedRun]:
        """Yield all runs, with the data in a folder and on a device; those of one seed stand together."""
        own = {"data": {"folder": folder}, "training": {"device": device}}
        windows = self.windows if self.kind == "reconstruction" else None
        for setting, seed, scheme in product(self.settings, self.seeds, self.schemes):
            chosen = {"seed": seed, "selection": {"scheme": scheme}}
            tables = merged(merged(merged(self.spec, setting.spec), chosen), own)
            spec = Spec.from_tables(tables, f"{self.name}, {setting.name}")
            yield PlannedRun(setting.name, scheme, seed, spec, windows)


def merged(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with other values here and there.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(tables)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def differing(tables: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return what nested tables have that others, with the same keys, have not.

    >>> differing({"a": {"b": 1, "c": 2}, "d": 5}, {"a": {"b": 1, "c": 3}, "d": 5})
    {'a': {'c': 2}}
    """
    result = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            if below := differing(value, others[key]):
                result[key] = below
        elif value != others[key]:
            result[key] = value
    return result


def known_experiments(folder: Path | None = None) -> dict[str, Experiment]:
    """Return all experiments by name: those of a folder, or those that come with Coterie."""
    files = sorted((experiments_folder() if folder is None else folder).glob("*.toml"), key=lambda path: path.stem)
    return {path.stem: Experiment.read(path) for path in files}


def experiments_folder() -> Path:
    """Return where the experiments are: inside an installed package, or beside the sources."""
    inside = Path(__file__).parent / "experiments"
    return inside if inside.is_dir() else Path(__file__).parents[4] / "experiments"


def experiments_named(names: Sequence[str]) -> list[Experiment]:
    """Return experiments by their names or files, each once; `all` stands for those that come with Coterie."""
    known = known_experiments()
    if not names:
        raise UsageError(f"name experiments, or all: {', '.join(known)}")
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name == "all":
            chosen |= known
        elif name in known:
            chosen[name] = known[name]
        elif name.endswith(".toml"):
            own = Experiment.read(Path(name))
            if own.name in known:
                raise UsageError(f"{name} has the name of an experiment that comes with Coterie; rename the file")
            chosen[own.name] = own
        else:
            raise UsageError(f"there is no experiment {name!r}; known are {', '.join(known)}, and all")
    return list(chosen.values())
