"""LightSecAgg (docs/protocol.md §5): masks are shared in coded form, and the server decodes their sum once."""

from collections.abc import Iterable, Sequence

from coterie.secagg.crypto.ring import PRIME_31, Ring
from coterie.secagg.protocols.interface import Group, Party, RoundSetting
from coterie.secagg.protocols.lightsecagg.client import LightParticipant
from coterie.secagg.protocols.lightsecagg.messages import CodedSharing, ShareSum
from coterie.secagg.protocols.lightsecagg.server import LightRound
from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
)
from coterie.secagg.protocols.pairwise.round import PHASES
from coterie.secagg.wire.framing import Message


class LightSecAgg:
    """The inner protocol `lightsecagg`: everyone holds a coded share of everyone's mask."""

    name = "lightsecagg"
    rings: tuple[Ring, ...] = (PRIME_31,)
    phases = PHASES
    upload_phase = 3
    runs_unsealed = True
    server_sees = "One sum, over all complete batches of the cohort."
    from_client: tuple[type[Message], ...] = (
        Advertisement, CodedSharing, Receipt, Reveal, MaskedVector, Agreement, ShareSum,
    )  # fmt: skip
    from_server: tuple[type[Message], ...] = (RosterCall, Delivery, RevealCall, SharersCall, Proposal, Opening)

    def cohort_bound(self, per_round: int, largest_batch: int) -> int:
        """Return the users of a round, all of whose vectors are added."""
        return max(per_round, largest_batch)

    def least_included(self, batch_sizes: Iterable[int], privacy: int) -> int:
        """Return the largest batch and T more: else a sum less that batch's would be one of fewer than T users."""
        return max(batch_sizes) + privacy

    def participant(self, party: Party, threads: int) -> LightParticipant:
        """Return a client's side of one round."""
        del threads  # modulo the prime, where a mask's words lie shows only on the way
        return LightParticipant(party)

    def server_round(self, groups: Sequence[Group], setting: RoundSetting, threads: int) -> LightRound:
        """Return the server's side of one round."""
        del threads
        return LightRound(groups, setting)
