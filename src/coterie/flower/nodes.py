"""Which node is which user, in this run: node ids change with every run and restart, identity keys do not."""

import secrets
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from coterie.errors import PeerError
from coterie.flower.envelope import IDENTITY_REQUEST, INTRODUCTION, LOG, field_of, kind_of, wrap
from coterie.flower.mod import CHALLENGE, PURPOSE
from coterie.flower.transport import GridMessenger
from coterie.ledger import Ledger
from coterie.secagg.crypto.keys import verify_signature
from coterie.values import BoolArray

_FIELDS = ("user", "identity", "signature")

Admit: TypeAlias = Callable[[str, bytes, NodeInfo], bool]
"""Says whether a node may be the user of that name and identity key; the node's public key is in its info."""


def admit_everybody(user: str, identity: bytes, node: NodeInfo) -> bool:
    """Take every node's word, if it holds the identity key that it names."""
    del user, identity, node
    return True


class Nodes:
    """The users behind the nodes of a run: each node is asked once, and must sign what it says."""

    def __init__(self, grid: Grid, messenger: GridMessenger, ledger: Ledger, scope: str, admit: Admit) -> None:
        self._grid, self._messenger, self._ledger, self._scope, self._admit = grid, messenger, ledger, scope, admit
        self._challenge = secrets.token_bytes(CHALLENGE)
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
    def available(self) -> BoolArray:
        """Which of the ledger's users are connected."""
        return np.array([self.node_of(user) is not None for user in self._ledger.names], dtype=np.bool_)

    def refresh(self, timeout: float) -> None:
        """Look who is connected, ask the nodes that are new who they are, and take in what others have answered.

        Nothing is waited for here. A node that says nothing for `timeout` seconds is asked again.
        """
        nodes = {node.node_id: node for node in self._grid.get_nodes()}
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
                    self._introduce(nodes[node], *(field_of(content, name) for name in _FIELDS))
                except PeerError as error:
                    LOG.warning("Coterie does not take node %d for who it says it is: %s", node, error)
            self._answered.add(node)

    @property
    def silent(self) -> frozenset[int]:
        """The connected nodes that have not said who they are."""
        return self._online - self._answered

    def _introduce(self, node: NodeInfo, *fields: str | bytes) -> None:
        user, identity, signature = fields
        if not isinstance(user, str) or not isinstance(identity, bytes) or not isinstance(signature, bytes):
            raise PeerError("its introduction needs a name (text), an identity key and a signature (bytes)")
        verify_signature(identity, signature, PURPOSE, self._challenge, self._scope, user, who=user)
        known = {name: number for number, name in enumerate(self._ledger.names)}
        if user in known and self._ledger.key_of(known[user]) != identity:
            raise PeerError(f"it is {user!r} with another identity key than the one that was enrolled")
        if self._admit(user, identity, node) is not True:
            raise PeerError(f"{user!r} was not admitted")
        if user not in known:
            self.newcomers[user] = identity
        self._node[user] = node.node_id

    def enrol(self, names: Sequence[str] | None = None) -> int:
        """Give newcomers to the ledger, in this order, or all that are connected; return how many they were."""
        chosen = (
            sorted(user for user in self.newcomers if self.node_of(user) is not None) if names is None else names
        )
        self._ledger.enrol(chosen, [self.newcomers.pop(user) for user in chosen])
        return len(chosen)
