"""Coterie inside Flower (flwr 1.41): the only package that imports `flwr`.

`SealedStrategy` at the server and `SealingMod` at the clients run sealed rounds. `record_participation` writes
down who takes part where rounds are not sealed yet, for `coterie audit`.

In: a strategy at the server, a client app with its node's configuration.
Out: the same app with sealed rounds, and their ledger.
"""

from coterie.flower.mod import SealingMod
from coterie.flower.node import PinnedMembers, create_device
from coterie.flower.recorder import record_participation
from coterie.flower.strategy import SealedStrategy
from coterie.secagg import TrustServerForIdentities

__all__ = [
    "PinnedMembers",
    "SealedStrategy",
    "SealingMod",
    "TrustServerForIdentities",
    "create_device",
    "record_participation",
]
