"""The server's side of Flower's Grid: messages to nodes, which node is which user, and a transport to users.

Coterie's bytes travel in Flower's messages as arrays, which Flower cuts into chunks and sends once.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from coterie.errors import PeerError
from coterie.federation.ledger import Ledger
from coterie.flower.recipe import RoundKind
from coterie.secagg import Outgoing
from coterie.secagg.crypto.keys import verify_signature
from coterie.secagg.protocols.interface import RoundPhase
from coterie.secagg.wire.framing import Data
from coterie.values import BoolArray

_T = TypeVar("_T", str, bytes)

LOG = logging.getLogger("flwr")
"""Flower's own logger: what is said there is seen where a run's messages are seen."""

RECORD = "coterie"
"""The record, in every message and reply, that says what it is."""
_BYTES = "coterie-bytes"

MESSAGE, IDENTITY_REQUEST, INTRODUCTION, REFUSAL = "message", "identity-request", "introduction", "refusal"
"""What a Flower message can be: bytes of the protocol, or who are you, or I am, or a refusal without a reason."""

CHALLENGE_BYTES = 32
"""How long the challenge of an identity request is, which a device signs to show who it is."""
PURPOSE = "flower/hello"
"""What an identity key signs an introduction for."""


def wrap(kind: str, *pieces: Data, **fields: str | bytes) -> RecordDict:
    """Return the content of a Flower message; equal pieces of several messages are stored and sent once."""
    content = RecordDict({RECORD: ConfigRecord({"kind": kind, **fields})})
    if pieces:
        arrays = {str(number): Array(np.frombuffer(piece, dtype=np.uint8)) for number, piece in enumerate(pieces)}
        content[_BYTES] = ArrayRecord(arrays)
    return content


def kind_of(content: RecordDict) -> str:
    """Return what a message is; empty for one that Coterie did not make."""
    record = content.config_records.get(RECORD)
    return str(record.get("kind", "")) if record is not None else ""


def field_of(content: RecordDict, name: str, kind: type[_T]) -> _T:
    """Return a field of a message that was made by `wrap`: text or bytes."""
    value = content.config_records[RECORD].get(name)
    if not isinstance(value, kind):
        raise PeerError(f"a message came without {name!r}, as {'text' if kind is str else 'bytes'}")
    return value


def has_bytes(content: RecordDict) -> bool:
    """Return whether a message has any of the protocol's bytes; a member that only helps has none to send."""
    return _BYTES in content.array_records


def unwrap(content: RecordDict) -> bytes:
    """Return the protocol's bytes in a message, put together again."""
    record = content.array_records.get(_BYTES)
    if record is None:
        raise PeerError("a message came without its bytes")
    try:
        pieces = [record[str(number)].numpy() for number in range(len(record))]
    except (KeyError, ValueError, EOFError, OSError) as error:
        raise PeerError(f"a message came whose bytes cannot be read: {error}") from None
    if any(piece.dtype != np.uint8 for piece in pieces):
        raise PeerError("a message came whose bytes are not bytes")
    return b"".join(piece.tobytes() for piece in pieces)


def cut(data: bytes, common: bytes) -> Sequence[Data]:
    """Cut a message around what it has in common with those to others, the model; nothing is changed or lost.

    >>> [bytes(piece) for piece in cut(b"call:MODEL:end", b"MODEL")], cut(b"share", b"MODEL")
    ([b'call:', b'MODEL', b':end'], (b'share',))
    """
    start = data.find(common) if common else -1
    if start < 0:
        return (data,)
    view, end = memoryview(data), start + len(common)
    return [view[:start], view[start:end], view[end:]]


# --- nodes and users

Admit: TypeAlias = Callable[[str, bytes, NodeInfo], bool]
"""Says whether a node may be the user of that name and identity key; the node's public key is in its info."""


def admit_everybody(user: str, identity: bytes, node: NodeInfo) -> bool:
    """Take every node's word, if it holds the identity key that it names."""
    del user, identity, node
    return True


PAUSES = (0.05, 1.0)
"""Seconds between two looks at the Grid: the shortest, and the longest."""


class GridMessenger:
    """Sends messages to nodes, and gives the replies as they come."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
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
            self.grid.push_messages(sent)
        present = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
        self._waiting |= present
        return frozenset(present)

    def pull(self) -> list[tuple[int, RecordDict]]:
        """Return (node, content) of the replies that have come; a node that failed is not waited for."""
        replies = []
        for reply in self.grid.pull_messages(list(self._waiting)) if self._waiting else ():
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


class Nodes:
    """The users behind the nodes of a run: each node is asked once, and must sign what it says.

    Node ids change with every run and restart; identity keys do not.
    """

    def __init__(self, messenger: GridMessenger, ledger: Ledger, scope: str, admit: Admit) -> None:
        self._messenger, self._ledger, self._scope, self._admit = messenger, ledger, scope, admit
        self._challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self._answered: set[int] = set()
        self._node: dict[str, int] = {}
        self._online: frozenset[int] = frozenset()
        self.newcomers: dict[str, bytes] = {}
        """Users whom the ledger does not have yet, with their identity keys."""

    def node_of(self, user: str) -> int | None:
        """Return the node that is a user now, if it is connected."""
        node = self._node.get(user)
        return node if node in self._online else None

    @property
    def connected(self) -> frozenset[str]:
        """The users that are connected, whether the ledger has them or not."""
        return frozenset(user for user, node in self._node.items() if node in self._online)

    @property
    def available(self) -> BoolArray:
        """Which of the ledger's users are connected."""
        connected = self.connected
        return np.array([user in connected for user in self._ledger.names], dtype=np.bool_)

    def refresh(self, timeout: float) -> None:
        """Look who is connected, ask the nodes that are new who they are, and take in what others have answered.

        Nothing is waited for here. A node that says nothing for `timeout` seconds is asked again.
        """
        nodes = {node.node_id: node for node in self._messenger.grid.get_nodes()}
        self._online = frozenset(nodes)
        # Who went away without a name may come back under the same id with one: its owner saw to it.
        self._answered &= self._online | set(self._node.values())
        request = wrap(IDENTITY_REQUEST, challenge=self._challenge)
        self._messenger.push(dict.fromkeys(sorted(self.silent - self._messenger.expecting), request), timeout)
        for node, content in self._messenger.pull():
            if node not in nodes or node in self._answered:
                continue
            if kind_of(content) != INTRODUCTION:
                LOG.warning("Coterie: node %d does not say who it is; does its app have the mod?", node)
            else:
                try:
                    self._introduce(nodes[node], content)
                except PeerError as error:
                    LOG.warning("Coterie does not take node %d for who it says it is: %s", node, error)
            self._answered.add(node)

    @property
    def silent(self) -> frozenset[int]:
        """The connected nodes that have not said who they are."""
        return self._online - self._answered

    def _introduce(self, node: NodeInfo, content: RecordDict) -> None:
        user, identity = field_of(content, "user", str), field_of(content, "identity", bytes)
        signature = field_of(content, "signature", bytes)
        verify_signature(identity, signature, PURPOSE, self._challenge, self._scope, user, who=user)
        known = {name: number for number, name in enumerate(self._ledger.names)}
        if user in known and self._ledger.key_of(known[user]) != identity:
            raise PeerError(f"it is {user!r} with another identity key than the one that was enrolled")
        if self._admit(user, identity, node) is not True:
            raise PeerError(f"{user!r} was not admitted")
        if user not in known:
            self.newcomers[user] = identity
        self._node[user] = node.node_id

    @property
    def arrivals(self) -> list[str]:
        """The newcomers that are connected."""
        return sorted(self.connected & self.newcomers.keys())

    def enrol(self, names: Sequence[str]) -> None:
        """Give newcomers to the ledger, in this order; others of the names are there already."""
        chosen = [user for user in names if user in self.newcomers]
        if chosen:
            self._ledger.enrol(chosen, [self.newcomers.pop(user) for user in chosen])


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
        kind = self._kind if moment.round is not None and moment.phase == 0 else MessageType.TRAIN
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
                try:
                    data = unwrap(content)
                except PeerError as error:
                    LOG.warning("Coterie: %s sent what cannot be read: %s", user, error)
                else:
                    yield user, data
