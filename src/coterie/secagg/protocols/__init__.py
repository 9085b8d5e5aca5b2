"""How the sum of sealed vectors is taken: one file or package for each inner protocol, and the registry of all.

A new inner protocol is an object of the shape of `interface.InnerProtocol`, in a file or package of its own, and
one line here.
"""

from coterie.secagg.protocols.interface import InnerProtocol
from coterie.secagg.protocols.lightsecagg import LightSecAgg
from coterie.secagg.protocols.open import Open
from coterie.secagg.protocols.pairwise import SecAgg, SecAggPlus
from coterie.secagg.wire.framing import Message, MessageDecoder
from coterie.secagg.wire.messages import FROM_CLIENT, FROM_SERVER

_ALL: tuple[InnerProtocol, ...] = (Open(), SecAgg(), SecAggPlus(), LightSecAgg())

PROTOCOLS: dict[str, InnerProtocol] = {protocol.name: protocol for protocol in _ALL}
"""All inner protocols by the names that charters have."""
DEFAULT_PROTOCOL = SecAggPlus.name
"""The inner protocol where none is named."""


def _distinct(*kinds: type[Message]) -> tuple[type[Message], ...]:
    """Return every kind once: some protocols have messages in common."""
    return tuple(dict.fromkeys(kinds))


messages_from_client: MessageDecoder[Message] = MessageDecoder(
    _distinct(*FROM_CLIENT, *(kind for each in _ALL for kind in each.from_client)), "client"
)
messages_from_server: MessageDecoder[Message] = MessageDecoder(
    _distinct(*FROM_SERVER, *(kind for each in _ALL for kind in each.from_server)), "server"
)

__all__ = ["DEFAULT_PROTOCOL", "PROTOCOLS", "InnerProtocol", "messages_from_client", "messages_from_server"]
