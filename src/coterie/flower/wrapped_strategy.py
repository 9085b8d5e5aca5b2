"""The strategy that is wrapped: what it would send, and what it makes of the average."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, strategy
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run

from coterie.errors import UsageError
from coterie.flower.checkpoint import StrategyState
from coterie.flower.recipe import RecipeSetting, Records, RoundKind, settings_of, with_types_of
from coterie.flower.transport import LOG

_SINGLE = "it compares single users' updates, and no server ever sees one here"
_CLIPS = "it clips or counts single users' replies at the server, and there is one reply here, the average"
REFUSED: Mapping[type[Strategy], str] = {
    strategy.Krum: _SINGLE,
    strategy.MultiKrum: _SINGLE,
    strategy.Bulyan: _SINGLE,
    strategy.FedMedian: _SINGLE,
    strategy.FedTrimmedAvg: _SINGLE,
    strategy.QFedAvg: "it weights updates by single users' losses",
    strategy.FedXgbBagging: "it collects single users' trees, which have no sum",
    strategy.FedXgbCyclic: "it passes a single user's trees on",
    strategy.DifferentialPrivacyServerSideFixedClipping: _CLIPS,
    strategy.DifferentialPrivacyServerSideAdaptiveClipping: _CLIPS,
    strategy.DifferentialPrivacyClientSideFixedClipping: _CLIPS,
    strategy.DifferentialPrivacyClientSideAdaptiveClipping: _CLIPS,
}
"""Strategies that need more than an average, and what of."""

METRICS = "metrics"
"""The record in which a wrapped strategy gets the average of metrics."""


class Request(NamedTuple):
    """What a strategy asks of every node in a round."""

    records: Records
    settings: dict[str, RecipeSetting]
    arrays: ArrayRecord


class WrappedStrategy:
    """A strategy that is asked what to send, and is given the average as the reply of one node."""

    def __init__(self, wrapped: Strategy) -> None:
        self._strategy, self._name = wrapped, type(wrapped).__name__
        for kind, reason in REFUSED.items():
            if isinstance(wrapped, kind):
                raise UsageError(f"{self._name} cannot be wrapped: {reason}; use FedAvg or one of its kin")
        self.weighted_by = str(getattr(wrapped, "weighted_by_key", "num-examples"))
        self._sent: dict[RoundKind, Message] = {}

    def request(
        self, kind: RoundKind, server_round: int, arrays: ArrayRecord, config: ConfigRecord
    ) -> Request | None:
        """Return what the strategy sends to every node in a round; None if it sends nothing."""
        configure = self._strategy.configure_train if kind == "train" else self._strategy.configure_evaluate
        grid, own_config = _Everybody(self._strategy), ConfigRecord(dict(config))  # which the strategy may change
        with _quiet():
            messages = list(configure(server_round, arrays, own_config, grid))
        if not messages:
            return None
        content = messages[0].content
        if any(message.content != content for message in messages):
            raise UsageError(f"{self._name} sends nodes different messages; in a sealed round all get the same")
        if len(content.array_records) != 1 or len(content.config_records) > 1 or content.metric_records:
            raise UsageError(
                f"{self._name} sends the records {', '.join(content)}; send one ArrayRecord and one ConfigRecord"
            )
        self._sent[kind] = messages[0]
        ((key, model),) = content.array_records.items()
        config_key, given = next(iter(content.config_records.items()), ("config", ConfigRecord()))
        return Request(Records(key, config_key), settings_of(given, f"{kind}_config"), model)

    def average(
        self, server_round: int, arrays: ArrayRecord, metrics: Mapping[str, float], users: int
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        """Return the strategy's next model, made of the average of users' models and metrics."""
        key = next(iter(self._sent["train"].content.array_records))
        reply = self._reply("train", {key: arrays}, metrics, users)
        with _quiet():
            after, aggregated = self._strategy.aggregate_train(server_round, [reply])
        if after is None:
            raise UsageError(f"{self._name} made no model of the average in round {server_round}")
        return with_types_of(after, like=arrays), aggregated

    def evaluation(self, server_round: int, metrics: Mapping[str, float], users: int) -> MetricRecord | None:
        """Return what the strategy makes of the average of metrics."""
        reply = self._reply("evaluate", {}, metrics, users)
        with _quiet():
            return self._strategy.aggregate_evaluate(server_round, [reply])

    def _reply(
        self, kind: RoundKind, arrays: Mapping[str, ArrayRecord], metrics: Mapping[str, float], users: int
    ) -> Message:
        """Return what stands for all nodes' replies: their average, with as much weight as there are users."""
        records = RecordDict({**arrays, METRICS: MetricRecord({**metrics, self.weighted_by: users})})
        return Message(records, reply_to=self._sent[kind])

    @property
    def state(self) -> StrategyState:
        """What the strategy remembers of earlier rounds: all its attributes that are arrays, such as momentum."""
        return {name: value for name, value in vars(self._strategy).items() if _holds_arrays(value)}

    def restore(self, state: StrategyState) -> None:
        """Give the strategy back what it remembered."""
        for name, value in state.items():
            if not hasattr(self._strategy, name):
                raise UsageError(
                    f"the checkpoint has {name!r} of another strategy than {self._name}; go on "
                    "with the strategy that the federation began with"
                )
            setattr(self._strategy, name, value)


def _holds_arrays(value: object) -> bool:
    if isinstance(value, ArrayRecord):
        return True
    entries = list(value.values()) if isinstance(value, dict) else value
    arrays = (np.ndarray, np.generic)  # arithmetic makes numbers of arrays that hold one
    return isinstance(entries, list) and bool(entries) and all(isinstance(each, arrays) for each in entries)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what a strategy says of how many nodes it sampled and heard out of the log: here it is not so."""
    level = LOG.level
    LOG.setLevel(logging.WARNING)
    try:
        yield
    finally:
        LOG.setLevel(level)


class _Everybody(Grid):
    """A grid with as many nodes as a strategy wants to see; nothing is ever sent over it."""

    def __init__(self, wrapped: Strategy) -> None:
        wanted = (getattr(wrapped, f"min_{what}_nodes", 1) for what in ("available", "train", "evaluate"))
        self._nodes = list(range(1, max(1, *(int(each) for each in wanted)) + 1))

    def get_node_ids(self) -> list[int]:
        """Return as many ids as the strategy waits for."""
        return self._nodes

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message, which will not be sent as such."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(
            "the wrapped strategy uses the grid itself; in a sealed round only Coterie sends messages"
        )

    set_run = push_messages = pull_messages = send_and_receive = _refuse

    @property
    def run(self) -> Run:
        """Refused."""
        self._refuse()
