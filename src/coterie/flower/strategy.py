"""The server's side in Flower: a strategy whose rounds are sealed, around one of Flower's own."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coterie.errors import UsageError
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.store import is_postgres_url
from coterie.flower.envelope import LOG
from coterie.flower.federation import Federation
from coterie.flower.transport import Admit, admit_everybody
from coterie.flower.work import Bounds, Metrics, RoundKind
from coterie.flower.wrapped_strategy import WrappedStrategy
from coterie.secagg import DEFAULT_PROTOCOL, PROTOCOLS
from coterie.values import BatchPlan
from coterie.values.checks import check_count


@dataclass
class SealedStrategy:
    """Runs a Flower strategy so that no sum over fewer than T users is ever learned, over any number of rounds.

    `strategy` is any strategy of the Message API that needs no more than an average: FedAvg, FedProx, FedAvgM,
    FedAdagrad, FedAdam, FedYogi, or your own. `start` is called as theirs. Users are put into batches of at least
    `privacy`; a batch is in a round's sum whole or not at all, which the users' own keys enforce. The ledger holds
    plan, charters and all that was learned (`coterie audit LEDGER`); a second start over the same ledger goes on
    with the same batches, the next round and the last model.

    With the default protocol `secagg+` the server sees one sum over all complete batches of a round, after six
    messages each way. `protocol="open"` needs one message each way, and shows the server **the sum of every single
    batch**: privacy over many rounds is the same T, but within a round T users hide among themselves only.

    The training configuration and the entries of `run_config` stand in the batches' charters: they stay the same
    for the federation's whole life, and the app's functions see these and no others.
    """

    strategy: Strategy
    privacy: int
    """T, the least number of users in a batch."""
    ledger: str | os.PathLike[str]
    """A SQLite file, or a PostgreSQL URL; made where there is none."""
    per_round: int | None = None
    """The most users that are asked in a round; all unless given."""
    scope: str = "flower"
    """The name of the data that rounds may read, as in the clients' mod."""
    protocol: str = DEFAULT_PROTOCOL
    clip: float = 1.0
    """The largest change of one number of the model; what lies beyond is cut."""
    weight_cap: int = 2**16
    """The largest weight of a user; 1 gives all the same weight, and halves what is sent."""
    users: int | None = None
    """How many users to wait for before the first plan is made; as many as a round needs unless given."""
    plan: BatchPlan | None = None
    """The first plan, whose users are named as their devices are; made of all who are there unless given."""
    train_metrics: Mapping[str, Bounds] = field(default_factory=dict)
    """Metrics of the train function that are averaged, each with its least and greatest value."""
    evaluate_metrics: Mapping[str, Bounds] = field(default_factory=dict)
    """The same of the evaluate function; without any there is no federated evaluation."""
    run_config: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The entries of the run's configuration that the app's functions read."""
    models: str | os.PathLike[str] | None = None
    """The folder of the model's checkpoints; beside a SQLite ledger unless given."""
    wait: float = 600.0
    """For how many seconds a round waits for enough nodes before it is skipped."""
    seed: int = 0
    """What the choice of batches follows from."""
    admit: Admit = admit_everybody
    """Says whether a node may be the user that it says it is."""

    def __post_init__(self) -> None:
        self._wrapped = WrappedStrategy(self.strategy)
        names = [name for name, protocol in PROTOCOLS.items() if protocol.storable]  # one process per message
        if self.protocol not in names:
            raise UsageError(f"the protocol is {self.protocol!r}; over Flower run {', '.join(names)}")
        check_count(self.privacy, "privacy", least=2)
        check_count(self.weight_cap, "weight_cap")
        for bounds in (self.train_metrics, self.evaluate_metrics):
            Metrics(bounds)
        for name, value in self.run_config.items():
            if not isinstance(value, bool | int | float | str):
                raise UsageError(f"run_config has {name!r} as {type(value).__name__}; give a number or a text")
        if not self.wait > 0:
            raise UsageError(f"wait is {self.wait}; give a number of seconds")

    @property
    def location(self) -> str | Path:
        """Where the ledger is: a URL, or a file."""
        return str(self.ledger) if is_postgres_url(self.ledger) else Path(self.ledger).expanduser()

    @property
    def checkpoints(self) -> Path:
        """The folder of the model's checkpoints."""
        if self.models is not None:
            return Path(self.models).expanduser()
        path = self.location
        if isinstance(path, str):
            raise UsageError(
                "a ledger in PostgreSQL has no folder beside it: say with models=FOLDER where models go"
            )
        return path.with_name(f"{path.name}.models")

    def summary(self) -> None:
        """Say in the log what is promised, and at which price."""
        protocol, location = PROTOCOLS[self.protocol], self.location
        place = "in PostgreSQL" if isinstance(location, str) else location  # a URL may hold a password
        LOG.info("\t├──> Sealed: T = %d, protocol %s, ledger %s", self.privacy, self.protocol, place)
        LOG.info("\t│\t├── The server sees: %s", protocol.server_sees)
        LOG.info("\t│\t├── Messages to each node in a round: %d", protocol.phases)
        evaluated = ", ".join(self.evaluate_metrics) or "off (name evaluate_metrics to have it)"
        LOG.info("\t│\t└── Federated evaluation: %s", evaluated)
        self.strategy.summary()

    def start(  # noqa: PLR0917 - as Flower's strategies have it
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run rounds up to `num_rounds`, counted from the federation's first; return what Flower's start does.

        `timeout` is for how many seconds a node's answer to one message is waited for: a round of `secagg+` has
        six of them. What the rounds before a restart gave is not in the result, but for the model.
        """
        check_count(num_rounds, "num_rounds")
        if not timeout > 0:
            raise UsageError(f"timeout is {timeout}; give the seconds to wait for each reply")
        LOG.info("Starting %s around %s:", type(self).__name__, type(self.strategy).__name__)
        self.summary()
        configs: Mapping[RoundKind, ConfigRecord] = {
            "train": train_config or ConfigRecord(), "evaluate": evaluate_config or ConfigRecord(),
        }  # fmt: skip
        with Ledger.open_or_create(self.location) as ledger:
            federation = Federation(
                self, self._wrapped, ledger, grid, arrays=initial_arrays, timeout=timeout, configs=configs
            )
            federation.gather_users()
            result = Result(arrays=federation.arrays)
            if evaluate_fn is not None and federation.server_round == 0:
                _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, federation.arrays))
            if federation.server_round >= num_rounds:
                LOG.info("The ledger has %d rounds already; nothing is left to do", federation.server_round)
            while federation.server_round < num_rounds:
                number = federation.server_round + 1
                LOG.info("")
                LOG.info("[ROUND %s/%s]", number, num_rounds)
                trained, evaluated = federation.train(number), federation.evaluate(number)
                tested = None if evaluate_fn is None else evaluate_fn(number, federation.arrays)
                federation.end(number, trained, evaluated, tested)
                _keep(result.train_metrics_clientapp, number, trained)
                _keep(result.evaluate_metrics_clientapp, number, evaluated)
                _keep(result.evaluate_metrics_serverapp, number, tested)
            result.arrays = federation.arrays
        return result


def _keep(history: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        LOG.info("\t└──> MetricRecord: %s", metrics)
        history[number] = metrics
