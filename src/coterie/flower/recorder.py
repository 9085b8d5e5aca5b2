"""The participation log of a Flower deployment as it is: who was in the sum of each round, for `coterie audit`."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from coterie.errors import UsageError
from coterie.files import wait_for_lock, writing
from coterie.flower.node import user_of
from coterie.flower.transport import LOG

_Strategy = TypeVar("_Strategy", bound=Strategy)


def name_by_key(node: NodeInfo) -> str:
    """Name a SuperNode by the SHA-256 of its public key, or by its id where it has none.

    The key stays over restarts if the SuperNode was started with --auth-supernode-private-key. Without it, a
    SuperNode makes a new one at every start.

    >>> name_by_key(NodeInfo(node_id=7)), name_by_key(NodeInfo(node_id=7, public_key=b"key"))
    ('node-7', '2c70e12b7a0646f92279f427c7b38e73')
    """
    return user_of(node.public_key) if node.public_key else f"node-{node.node_id}"


def record_participation(
    strategy: _Strategy, path: str | os.PathLike[str], name_node: Callable[[NodeInfo], str] = name_by_key
) -> _Strategy:
    """Have a strategy append to a file who replied in every training round, and return the strategy.

    Nothing else about it changes. A line such as `{"round": 7, "run": "12", "server_round": 3, "users": […]}` is
    on the disk before the replies are aggregated; a round without replies has none. Rounds are numbered on from
    run to run, so that `coterie audit` judges all runs together.

    `name_node` gives each node its name, which must be the same in every run: a device under two names makes the
    level come out too high. A warning says if no node of a run is known from the runs before.
    """
    recorder = _Recorder(Path(path).absolute(), name_node)
    configure, aggregate = strategy.configure_train, strategy.aggregate_train

    def configure_train(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        # A list: a strategy may make its messages while they are sent, and wait for nodes meanwhile.
        messages = list(configure(server_round, arrays, config, grid))
        recorder.see(grid)
        return messages

    def aggregate_train(
        server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        received = list(replies)
        recorder.append(server_round, [each.metadata.src_node_id for each in received if not each.has_error()])
        return aggregate(server_round, received)

    # On the instance: also a strategy with a `start` of its own, or inside another strategy, is recorded.
    strategy.configure_train = configure_train  # type: ignore[method-assign]
    strategy.aggregate_train = aggregate_train  # type: ignore[method-assign]
    return strategy


@dataclass
class _Recorder:
    """Appends rounds to a log's file, which several runs may do at a time."""

    path: Path
    name_node: Callable[[NodeInfo], str]
    run: str = ""
    last: int = 0
    size: int = 0
    """Of the part of the file that was read, or written here."""
    before: set[str] = field(default_factory=set)
    """Users of the runs before, until they have been compared with the nodes of this one."""
    names: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self._open() as file:
            self._read(file)
        LOG.info("Participation is appended to %s, from round %s on", self.path, self.last + 1)

    def see(self, grid: Grid) -> None:
        """Learn the names of the nodes that are connected."""
        self.run = str(grid.run.run_id)
        self.names |= {node.node_id: self.name_node(node) for node in grid.get_nodes()}
        if self.before and self.before.isdisjoint(self.names.values()):
            LOG.warning(
                "No node of this run is among the %s users in %s. If they are the same devices, they changed "
                "their keys (SuperNodes without --auth-supernode-private-key do at every start), each counts as "
                "several users, and an audit gives too high a level.",
                len(self.before),
                self.path,
            )
        self.before = set()

    def append(self, server_round: int, nodes: list[int]) -> None:
        """Write down who is in the sum of a round, and bring it to the disk."""
        users = sorted({self.names.get(node, f"node-{node}") for node in nodes})
        with self._open() as file:
            self._read(file)
            self.last += 1
            if not users:
                return
            entry = {"round": self.last, "run": self.run, "server_round": server_round, "users": users}
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.size = file.tell()

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        with writing(self.path), self.path.open("a+b") as file:
            wait_for_lock(file)
            yield file

    def _read(self, file: BinaryIO) -> None:
        """Read what was appended since the last time, by runs before or beside this one."""
        file.seek(self.size)
        for line in file:
            if not line.endswith(b"\n"):
                # A crash cut it off, before its round was aggregated.
                file.truncate(self.size)
                break
            try:
                entry = json.loads(line)
                self.last = max(self.last, int(entry["round"]))
                self.before.update(entry["users"])
            except (ValueError, KeyError, TypeError):
                raise UsageError(
                    f"{self.path} has a line that is no round of a participation log, {line[:40]!r}; give another "
                    "file"
                ) from None
            self.size += len(line)
