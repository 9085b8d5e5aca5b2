"""The legal order of messages in a round of LightSecAgg, as tables (§5).

It is that of a pairwise round, but for the messages that carry shares.
"""

from coterie.secagg.protocols.lightsecagg.messages import CodedSharing, ShareSum
from coterie.secagg.protocols.pairwise.messages import Sharing, Unmasking
from coterie.secagg.protocols.pairwise.states import SERVER_TABLE as PAIRWISE_TABLE
from coterie.secagg.protocols.pairwise.states import ServerState
from coterie.secagg.wire.framing import Message

_IN_PLACE_OF: dict[type[Message], type[Message]] = {Sharing: CodedSharing, Unmasking: ShareSum}

SERVER_TABLE: dict[tuple[ServerState, type[Message]], ServerState] = {
    (state, _IN_PLACE_OF.get(kind, kind)): after for (state, kind), after in PAIRWISE_TABLE.items()
}
