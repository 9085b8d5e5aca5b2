"""The server's side in Flower: a strategy whose rounds are sealed, around one of Flower's own.

The order of a round that privacy rests on is the coordinator's. Here is what surrounds it, from one start of the
ServerApp to the end: enrolment, plan, batches and rounds; who is there, what the wrapped strategy sends and makes
of the mean, and where the federation stands if the process dies at any instant.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coterie.errors import TooFewUsersError, UsageError
from coterie.federation.aggregation import SealedAggregation, form_batches
from coterie.federation.coordinator import Coordinator, RoundOutcome
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.store import is_postgres_url
from coterie.flower.checkpoint import MODEL, CheckpointFolder, FlowerCheckpoint
from coterie.flower.recipe import SETTINGS, STRUCTURE, Bounds, Metrics, Recipe, RoundKind, Work
from coterie.flower.transport import LOG, PAUSES, Admit, GridMessenger, GridTransport, Nodes, admit_everybody
from coterie.flower.wrapped_strategy import Request, WrappedStrategy
from coterie.secagg import DEFAULT_PROTOCOL, PROTOCOLS, BatchRules, Charter, Quantiser, Terms
from coterie.selection import BatchSelector, consecutive, join
from coterie.values import BatchPlan, FloatArray
from coterie.values.checks import check_count
from coterie.values.text import counted


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


# --- a federation, from one start of its ServerApp to the end

SERVER_ROUND = "server-round"
"""The metric of a ledger's round that says which round of Flower's it ended."""
_PATIENCE = 60.0  # seconds that a round waits at most for a connected node to say who it is, or to form a batch


class Federation:
    """The users of a ledger, reached over a grid, and the model that they train."""

    def __init__(
        self,
        settings: "SealedStrategy",
        wrapped: WrappedStrategy,
        ledger: Ledger,
        grid: Grid,
        *,
        arrays: ArrayRecord,
        timeout: float,
        configs: Mapping[RoundKind, ConfigRecord],
    ) -> None:
        """`arrays`, `timeout` and `configs` are those that Flower's strategies are started with."""
        self._settings, self._wrapped, self._ledger = settings, wrapped, ledger
        self._timeout, self._configs = timeout, configs
        self._protocol = PROTOCOLS[settings.protocol]
        messenger = GridMessenger(grid)
        self._nodes = Nodes(messenger, ledger, settings.scope, settings.admit)
        self._transport = GridTransport(messenger, self._nodes.node_of, timeout)
        self._coordinator = Coordinator(ledger, self._selector, settings.seed)
        self._checkpoints = CheckpointFolder(settings.checkpoints)
        self._patience = min(timeout, settings.wait / 2, _PATIENCE)
        self._silent_since: dict[int, float] = {}
        self._form_again: dict[int, float] = {}
        self.server_round, self._digest, self.arrays = 0, "", arrays
        self._resume()
        self._recipe = self._make_recipe()

    # --- where it stands

    def _resume(self) -> None:
        snapshot = self._ledger.snapshot()
        for each in snapshot.rounds:
            self._digest = each.files.get(MODEL, self._digest)
            self.server_round = max(self.server_round, int(each.metrics.get(SERVER_ROUND, 0)))
        if self._digest:
            checkpoint = self._checkpoints.read(self._digest)
            self.arrays = checkpoint.arrays
            self.server_round = max(self.server_round, checkpoint.server_round)
            self._wrapped.restore(checkpoint.state)
            LOG.info("Coterie goes on after round %d of %s", self.server_round, self._ledger.place)

    def end(self, number: int, *measured: MetricRecord | None) -> None:
        """Take down that a round of Flower's is over, and what was measured in it."""
        numbers = {
            name: float(value)
            for metrics in measured
            for name, value in (metrics or {}).items()
            if isinstance(value, int | float)
        }
        self._ledger.note(self._ledger.next_round - 1, {**numbers, SERVER_ROUND: number})
        self.server_round = number

    # --- what charters fix

    def _make_recipe(self) -> Recipe:
        settings, number = self._settings, self.server_round + 1
        asked = self._request("train", number)
        if asked is None:
            raise UsageError(f"{type(settings.strategy).__name__} trains nobody; raise its fraction_train")
        evaluation = self._request("evaluate", number) if settings.evaluate_metrics else None
        recipe = Recipe(
            train=asked.settings,
            evaluate={} if evaluation is None else evaluation.settings,
            run_config=dict(settings.run_config),
            train_metrics=Metrics(settings.train_metrics).lines(),
            evaluate_metrics=Metrics(settings.evaluate_metrics).lines(),
            weighted_by=self._wrapped.weighted_by,
            records=asked.records,
        )
        unusual = sorted({*recipe.train, *recipe.evaluate, *recipe.run_config} - STRUCTURE - SETTINGS)
        if unusual:
            LOG.warning(
                "Coterie: devices take the setting%s %s only if the app allows it, with "
                "SealingMod(recipe_keys={%s}); otherwise they refuse to form batches",
                "s" * (len(unusual) > 1),
                ", ".join(unusual),
                ", ".join(map(repr, unusual)),
            )
        return recipe

    def _request(self, kind: RoundKind, number: int) -> Request | None:
        return self._wrapped.request(kind, number, self.arrays, self._configs[kind])

    def _work(self, kind: RoundKind, number: int) -> Work | None:
        """Return what the strategy asks for in a round; refuse another configuration than the charters'."""
        asked, expected = self._request(kind, number), self._recipe.settings(kind)
        if asked is not None and asked.settings != expected:
            raise UsageError(
                f"the strategy's {kind}_config for round {number} is {asked.settings}, and the batches' charters "
                f"have {expected}; what changes with the rounds must follow from server-round in the app"
            )
        return None if asked is None else Work.of(kind, asked.arrays)

    def _batch_rules(self, plan: BatchPlan) -> BatchRules:
        """Return the rules of the charters that exist, which settings must match; without any, the settings'."""
        settings, recipe = self._settings, self._recipe.encode()
        if not self._ledger.charters:
            largest = int(plan.sizes.max())
            cohort = self._protocol.cohort_bound(settings.per_round or plan.users, largest)
            quantiser = Quantiser.in_ring_of(self._protocol.rings, settings.clip, settings.weight_cap, cohort)
            return BatchRules(settings.scope, settings.privacy, quantiser, settings.protocol, recipe=recipe)
        charter = Charter.decode(next(iter(self._ledger.charters.values())))
        quantiser = charter.quantiser
        for name, given, fixed in (
            ("scope", settings.scope, charter.scope),
            ("privacy", settings.privacy, charter.privacy),
            ("protocol", settings.protocol, charter.inner),
            ("clip", settings.clip, quantiser.clip),
            ("weight_cap", settings.weight_cap, quantiser.weight_cap),
            ("recipe (configurations, run_config and metrics)", recipe.decode(), charter.recipe.decode()),
        ):
            if given != fixed:
                raise UsageError(
                    f"{name} is {given!r}; the batches of {self._ledger.place} were founded with {fixed!r}, for "
                    "good"
                )
        return BatchRules(
            charter.scope, charter.privacy, quantiser, charter.inner, charter.parameters, charter.recipe
        )

    def _selector(self, plan: BatchPlan | None) -> BatchSelector:
        if plan is None:
            raise UsageError("the ledger has no plan")
        per_round = min(self._settings.per_round or plan.users, plan.users)
        if self._protocol.phases > 1:
            per_round = min(per_round, self._batch_rules(plan).quantiser.cohort)
        return BatchSelector(plan, per_round, least_users=self._least_of(plan))

    # --- who is in it

    def gather_users(self) -> None:
        """Have users enrolled and a plan made of them, if there is none; batches are formed before a round."""
        plan = self._ledger.plan or self._first_plan()
        self._batch_rules(plan)
        per_round, least = self._settings.per_round, self._least_of(plan)
        if per_round is not None and per_round < least:
            raise UsageError(
                f"per_round is {per_round}; with {self._settings.protocol} and these batches devices want {least} "
                "users in a sum: raise it, or choose the protocol open"
            )

    def _first_plan(self) -> BatchPlan:
        settings, given = self._settings, self._settings.plan
        if given is not None and given.names is None:
            raise UsageError("the plan does not name its users; make it with names=")
        if given is not None and given.privacy != settings.privacy:
            raise UsageError(f"the plan is for T = {given.privacy}, the strategy for {settings.privacy}")
        wanted = set(given.names or ()) if given is not None else set()
        if given is not None and (given.names or ())[: self._ledger.users] != self._ledger.names:
            raise UsageError(
                f"{self._ledger.place} has {counted(self._ledger.users, 'user')} already, who are not the first "
                f"of the plan: name them first in it, from {self._ledger.names[0]!r} on, or begin a new ledger"
            )
        least = max(
            settings.users or 0,
            settings.privacy,
            self._protocol.least_included([settings.privacy], settings.privacy),
        )

        def missing() -> str:
            here = self._nodes.connected
            if wanted:
                absent = sorted(wanted - here)
                return f"{len(absent)} of {len(wanted)} users of the plan, such as {absent[0]!r}" if absent else ""
            return f"{least - len(here)} of {least} users" if len(here) < least else ""

        still = self._wait(missing, for_silent=settings.users is None and not wanted)
        if still:
            raise TooFewUsersError(
                f"after {settings.wait:g} seconds {still} are not connected; no plan can be made"
            )
        self._nodes.enrol(self._nodes.arrivals if given is None or given.names is None else given.names)
        plan = given or consecutive(self._ledger.users, settings.privacy, self._ledger.names)
        self._ledger.publish_plan(plan)
        LOG.info("Coterie: %s in %s", counted(plan.users, "user"), counted(len(plan), "batch", "batches"))
        return plan

    def _wait(self, missing: Callable[[], str], *, for_silent: bool = True) -> str:
        """Look who is connected until nobody is missing, or the time is over; return who still is.

        Nodes that have not said who they are yet are waited for too, but nothing fails for want of them.
        """
        deadline, last_message, pause = time.monotonic() + self._settings.wait, "", PAUSES[0]
        while True:
            self._nodes.refresh(self._timeout)
            over = time.monotonic() >= deadline
            still = (self._silent_nodes() if for_silent and not over else "") or missing()
            if not still or over:
                return still
            if still != last_message:
                LOG.info("Coterie waits for %s, for %g seconds at most", still, self._settings.wait)
                last_message = still
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, PAUSES[1])

    def _silent_nodes(self) -> str:
        """Say how many nodes are still to be heard of; those that let the others wait for long do not count."""
        silent = self._nodes.silent
        now = time.monotonic()
        self._silent_since = {node: self._silent_since.get(node, now) for node in silent}
        young = [node for node, since in self._silent_since.items() if now - since < self._patience]
        return f"{len(young)} connected nodes to say who they are" if young else ""

    def _form_batches(self) -> None:
        """Let newcomers form batches of their own once they are enough, and have charters signed."""
        plan = self._plan
        arrivals, without_plan = self._nodes.arrivals, self._ledger.users - plan.users
        if without_plan + len(arrivals) >= plan.privacy:
            self._nodes.enrol(arrivals)
            count = self._ledger.users - plan.users
            plan = join(plan, count, self._ledger.names[plan.users :] if plan.names is not None else None)
            self._ledger.publish_plan(plan)
            LOG.info("Coterie: %d new users in batches of their own", count)
        here, retired, now = self._nodes.available, self._ledger.retired, time.monotonic()
        ready = {
            batch
            for batch in range(len(plan))
            if batch not in self._ledger.charters and not retired[batch] and here[plan.batch(batch)].all()
        }
        if any(now >= self._form_again.get(batch, now) for batch in ready):
            failed = form_batches(self._ledger, self._transport, self._batch_rules(plan))
            for batch, reason in failed.items():
                LOG.warning("Coterie: batch %d is not formed: %s", batch, reason)
            # Whoever refused a charter refuses it again: not every look at the grid is a reason to ask.
            self._form_again = dict.fromkeys(ready & failed.keys(), time.monotonic() + self._patience)

    @property
    def _plan(self) -> BatchPlan:
        assert self._ledger.plan is not None  # noqa: S101 - `gather_users` made one
        return self._ledger.plan

    # --- its rounds

    def train(self, number: int) -> MetricRecord | None:
        """Run a round of training; the model moves on if it gave a mean."""
        work, aggregated = self._work("train", number), None
        if work is None:
            with self._ledger.claim():  # devices take no step that is ahead of its round
                self._ledger.skip_round("the strategy trains nobody")
            return None

        def write_checkpoint(outcome: RoundOutcome) -> dict[str, str]:
            nonlocal aggregated
            assert outcome.mean is not None  # noqa: S101 - the round is committed
            metrics = self._metrics(work, outcome.mean)
            average = work.moved_by(outcome.mean)
            self.arrays, aggregated = self._wrapped.average(number, average, metrics, len(outcome.included))
            checkpoint = FlowerCheckpoint(number, self.arrays, self._wrapped.state)
            # If the round is not committed after all, the federation ends, and the next one reads the one before.
            self._digest = self._checkpoints.write(checkpoint, self._digest)
            return {MODEL: self._digest}

        outcome = self._run(work, number, write_checkpoint)
        if outcome.mean is not None:
            self._warn_if_still(outcome.mean[: work.dimension])
        return aggregated

    def _warn_if_still(self, changes: FloatArray) -> None:
        """Say that the model stands still: a device whose app fails seals zeros, and cannot tell the server."""
        change = np.abs(changes).max(initial=0.0)
        if change <= self._batch_rules(self._plan).quantiser.step:
            LOG.warning(
                "Coterie: the model moved by %.2g at most, which is no more than rounding. Either nothing is left "
                "to learn, or the clip of %g is far above all updates, or the app's train function fails on the "
                "nodes: their own logs say so",
                change,
                self._settings.clip,
            )

    def evaluate(self, number: int) -> MetricRecord | None:
        """Run a round of evaluation: its vectors have the metrics and nothing else."""
        work = self._work("evaluate", number) if self._settings.evaluate_metrics else None
        if work is None:
            return None
        outcome = self._run(work, number)
        if outcome.mean is None:
            return None
        return self._wrapped.evaluation(number, self._metrics(work, outcome.mean), len(outcome.included))

    def _metrics(self, work: Work, mean: FloatArray) -> dict[str, float]:
        """Return the metrics in a round's mean, which come after the model's numbers."""
        return self._recipe.metrics(work.kind).values(mean[work.dimension :].tolist(), self._settings.clip)

    def _run(
        self, work: Work, number: int, before_commit: Callable[[RoundOutcome], Mapping[str, str]] = lambda _: {}
    ) -> RoundOutcome:
        least = self._least_of(self._plan)
        dimension = work.dimension + len(self._recipe.metrics(work.kind).bounds)
        step = number - 1 if work.kind == "train" else number  # how many rounds of training came before
        terms = Terms(work.encode(), dimension, least, step)
        aggregation = SealedAggregation(self._ledger, self._transport, terms, self._settings.protocol)

        def missing() -> str:
            self._form_batches()
            cohort = self._coordinator.choose(self._nodes.available, aggregation.ready(self._ledger.plan))
            if cohort is not None:
                return ""
            here = int(self._nodes.available.sum())
            return f"whole batches of {least} users in all; {here} of {self._ledger.users} are connected"

        still = self._wait(missing)
        available = np.zeros(self._ledger.users, dtype=np.bool_) if still else self._nodes.available
        self._transport.begin(work.kind, terms.model)
        outcome = self._coordinator.run_round(available, aggregation, before_commit)
        self._tell(work.kind, outcome)
        return outcome

    def _tell(self, kind: RoundKind, outcome: RoundOutcome) -> None:
        if outcome.state is State.COMMITTED:
            LOG.info("%s: the sum of %d users, in round %d", kind, len(outcome.included), outcome.round)
        else:
            LOG.warning("%s: round %d is %s: %s", kind, outcome.round, outcome.state, outcome.reason)
        for batch, reason in outcome.lost.items():
            LOG.warning("Coterie: batch %d is left out: %s", batch, reason)
        for user, reason in outcome.refused.items():
            LOG.warning("Coterie: %s was refused: %s", user, reason)

    def _least_of(self, plan: BatchPlan) -> int:
        """Return the fewest users that devices want in a sum."""
        return self._protocol.least_included(plan.sizes.tolist(), plan.privacy)
