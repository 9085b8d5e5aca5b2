"""Messages over Flower's Grid, with a time limit for every reply, and the transport that the coordinator needs."""

import time
from collections.abc import Callable, Iterator, Mapping

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from coterie.coordinator.aggregation import RoundPhase
from coterie.errors import PeerError
from coterie.flower.envelope import LOG, MESSAGE, REFUSAL, cut, has_bytes, kind_of, unwrap, wrap
from coterie.flower.model import RoundKind
from coterie.secagg import Outgoing
from coterie.secagg.wire.framing import Data

PAUSES = (0.05, 1.0)
"""Seconds between two looks at the Grid: the shortest, and the longest."""


class GridMessenger:
    """Sends messages to nodes, and gives the replies as they come."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._waiting: dict[str, int] = {}

    @property
    def expecting(self) -> frozenset[int]:
        """The nodes that have not answered all their messages."""
        return frozenset(self._waiting.values())

    def push(
        self,
        contents: Mapping[int, RecordDict],
        ttl: float,
        message_type: str = MessageType.TRAIN,
        group: str = "",
    ) -> frozenset[str]:
        """Send contents to nodes, and return the messages' ids; after `ttl` seconds nobody answers them."""
        sent = [
            Message(content, node, message_type, group_id=group, ttl=ttl) for node, content in contents.items()
        ]
        if sent:
            self._grid.push_messages(sent)
        present = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
        self._waiting |= present
        return frozenset(present)

    def pull(self) -> list[tuple[int, RecordDict]]:
        """Return (node, content) of the replies that have come; a node that failed is not waited for."""
        replies = []
        for reply in self._grid.pull_messages(list(self._waiting)) if self._waiting else ():
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if reply.has_error():
                LOG.warning("Coterie: node %s did not answer: %s", node, reply.error.reason)
            elif node is not None:
                replies.append((node, reply.content))
        return replies

    def send(
        self,
        contents: Mapping[int, RecordDict],
        timeout: float,
        message_type: str = MessageType.TRAIN,
        group: str = "",
    ) -> Iterator[tuple[int, RecordDict]]:
        """Send contents to nodes and yield (node, content) until all have answered or the time is over.

        A reply to an earlier message that came too late then is given too.
        """
        present = self.push(contents, 2 * timeout, message_type, group)  # a late reply is still seen, and counted
        deadline, pause = time.monotonic() + timeout, PAUSES[0]
        while not self._waiting.keys().isdisjoint(present):
            replies = self.pull()
            yield from replies
            if time.monotonic() >= deadline:
                return
            if not replies:
                time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = PAUSES[0] if replies else min(2 * pause, PAUSES[1])


class GridTransport:
    """Carries the messages of the protocol to users' nodes; a phase ends when all have answered, or in time."""

    def __init__(self, messenger: GridMessenger, node_of: Callable[[str], int | None], timeout: float) -> None:
        self._messenger, self._node_of, self._timeout = messenger, node_of, timeout
        self._kind: RoundKind = "train"
        self._common = b""
        self._users: dict[int, str] = {}

    def begin(self, kind: RoundKind, model: bytes) -> None:
        """Say what the next round asks for, and the bytes that its calls have in common."""
        self._kind, self._common = kind, model

    def exchange(self, outgoing: Outgoing, moment: RoundPhase) -> Iterator[tuple[str, Data]]:
        """Deliver the messages and yield users' answers; a refusal is silence."""
        group = "" if moment.round is None else str(moment.round)
        # An app's functions are reached by the type of a message; only calls reach them at all.
        kind = MessageType.EVALUATE if self._kind == "evaluate" and moment.phase == 0 else MessageType.TRAIN
        kind = MessageType.TRAIN if moment.round is None else kind
        present = {node: user for user in outgoing if (node := self._node_of(user)) is not None}
        self._users |= present
        contents = {node: wrap(MESSAGE, *cut(outgoing[user], self._common)) for node, user in present.items()}
        for node, content in self._messenger.send(contents, self._timeout, kind, group):
            user = self._users.get(node)
            if user is None:
                continue
            if kind_of(content) == REFUSAL:
                LOG.warning("Coterie: %s refused a message; its own log says why", user)
            elif has_bytes(content):
                yield from self._answers(user, content)

    def _answers(self, user: str, content: RecordDict) -> Iterator[tuple[str, Data]]:
        try:
            data = unwrap(content)
        except PeerError as error:
            LOG.warning("Coterie: %s sent what cannot be read: %s", user, error)
        else:
            yield user, data
